"""Each command that a server has, on keys of each type that were read before, so that copies of
them may be about. Its answer, and what it left behind, are a test's answer (outcomes.py). Variables:
PORT; PROTOCOL, 2 or 3; BEHIND, the port of the Redis behind, whose values GET has to give."""

import os
import socket
import sys

import outcomes

TYPES = {
    "nothing": [],
    "a string": [["set", "$k", "value"], ["set", "$l", "other"]],
    "a number": [["set", "$k", "41"], ["set", "$l", "1", "ex", "1000"]],
    "a list": [["rpush", "$k", "a", "b", "c"], ["rpush", "$l", "z"]],
    "a hash": [["hset", "$k", "f", "1", "g", "2"], ["hset", "$l", "f", "5"]],
    "a set": [["sadd", "$k", "1"], ["sadd", "$l", "1", "2"]],
    "a sorted set": [["zadd", "$k", "1", "a", "2", "b"], ["zadd", "$l", "3", "a"]],
    "a stream": [["xadd", "$k", "1-1", "f", "v"], ["xgroup", "create", "$k", "g", "0"],
                 ["xadd", "$l", "2-2", "f", "v"]],
}


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=5)
        self.file = self.socket.makefile("rb")
        if os.environ["PROTOCOL"] == "3":
            self.ask(["hello", "3"])

    def ask(self, words):
        """The answer as it came, in bytes."""
        encoded = [word if isinstance(word, bytes) else word.encode("latin1") for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the connection ended behind {line!r}")
        kind, length = line[:1], line[1:-2]
        if kind in b"$!=" and length != b"-1":
            return line + self.file.read(int(length) + 2)
        if kind in b"*~>%|" and length != b"-1":
            count = int(length) * (2 if kind in b"%|" else 1) + (kind == b"|")
            return line + b"".join(self.reply() for _ in range(count))
        return line

    def close(self):
        self.socket.close()


def split(text):
    """Words as the shell knows them, with double quotes and their escapes."""
    words, word, quoted, at = [], None, False, 0
    while at < len(text):
        sign = text[at]
        if quoted and sign == "\\" and text[at + 1] in "nx":
            code = text[at + 1] == "x"
            sign, at = ("\n", at + 1) if not code else (chr(int(text[at + 2:at + 4], 16)), at + 3)
            word += sign
        elif sign == '"':
            quoted, word = not quoted, word or ""
        elif sign == " " and not quoted:
            words, word = words + [word] * (word is not None), None
        else:
            word = (word or "") + sign
        at += 1
    return words + [word] * (word is not None)


def read_lines():
    """(mark, text, commands) of each line; text is what the test is named after."""
    with open(os.path.join(os.path.dirname(__file__), "commands")) as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                mark, text = (line[0], line[1:].strip()) if line[0] in "~!-" else ("", line)
                yield mark, text, [split(part) for part in text.split(" ; ")]


def names(server):
    """The names in COMMAND LIST in lower case, those of subcommands with a bar between."""
    answer = server.ask(["command", "list"]).split(b"\r\n")
    return {word.decode().lower() for word in answer if word and word[:1] not in b"*$~"}


def name_of(words, known):
    both = "|".join(words[:2]).lower().rstrip(":")
    return both if both in known else words[0].lower().rstrip(":")


def run(test, mark, commands, kind, number):
    keys = {"$k": f"k{number}", "$l": f"l{number}", "$d": f"d{number}"}
    fill = lambda words: [keys.get(word, word) for word in words]
    reader, asker = Connection(os.environ["PORT"]), Connection(os.environ["PORT"])
    try:
        for words in TYPES[kind]:
            if (answer := reader.ask(fill(words))).startswith(b"-"):
                raise ConnectionError(f"set-up {words}: {answer!r}")
        reads = [["get", keys["$k"]], ["get", keys["$l"]], ["get", keys["$d"]]]
        for words in reads * 3:
            reader.ask(words)
        answers = [asker.ask(fill(words)) for words in commands]
        after = [reader.ask(words) for words in reads]
        state = [reader.ask(["dump", keys[name]]) for name in keys]
        if behind := os.environ.get("BEHIND"):
            direct = Connection(behind)
            for words, told in zip(reads, after):
                if told != (value := direct.ask(words)):
                    raise ConnectionError(f"{words} then says {told!r}; the Redis behind {value!r}")
            direct.close()
        if mark == "~":
            answers, after, state = [answer[:1] for answer in answers], [], []
        if mark == "!":
            state = []
        told = [part.decode("latin1") for part in answers + after + state]
        outcomes.write(test, "passed", answer=told)
    except (OSError, ConnectionError) as error:
        outcomes.write(test, "failed", f"{type(error).__name__}: {error}")
    asker.close()
    reader.close()


def main():
    server = Connection(os.environ.get("BEHIND") or os.environ["PORT"])
    known = names(server)
    tried = set()
    number = 0
    for mark, text, commands in read_lines():
        here = {name_of(words, known) for words in commands}
        tried |= here
        # What other servers have; a name that none has is a test of its own.
        if mark == "-" or commands[0][0] != "nosuchcommand" and not here <= known:
            continue
        with_key = any(word[:1] == "$" and len(word) == 2 for words in commands for word in words)
        for kind in TYPES if with_key else ["nothing"]:
            number += 1
            run(f"{text} on {kind}", mark, commands, kind, number)
    # A container says nothing without its subcommand.
    containers = {name.split("|")[0] for name in known if "|" in name}
    for name in sorted(known - tried - containers):
        outcomes.write(name, "failed", "tools/conformance/commands has no line for this command")


if __name__ == "__main__":
    sys.exit(main())
