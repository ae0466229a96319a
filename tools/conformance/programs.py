"""The programs that come with a server: the whole default run of its benchmark, and what its client
does by itself. Outcomes as outcomes.py says. Variables: PORT; TOOLS, the folder of the programs;
NAME, what their names begin with (redis or valkey)."""

import os
import re
import subprocess

import outcomes

PORT = os.environ["PORT"]


def program(name, *words, stdin=b""):
    """What it wrote; an exception if it failed, or came to no end."""
    path = os.path.join(os.environ["TOOLS"], f"{os.environ['NAME']}-{name}")
    done = subprocess.run([path, "-p", PORT, *words], input=stdin, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    told = done.stdout.decode("latin1").replace("\r", "\n")
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {told[-200:]}")
    return told


def step(test, run):
    try:
        outcomes.write(test, "passed", answer=run())
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        outcomes.write(test, "failed", error)


def benchmark(*words):
    """Which tests it finished; that they have a rate says that no command was refused."""
    told = program("benchmark", "-q", *words)
    for line in told.split("\n"):
        if line.startswith("ERROR") or "Error" in line:
            raise RuntimeError(line)
    return re.findall(r"^(.*?): [0-9.]+ requests per second", told, re.M)


def pipe():
    """20,000 commands of three kinds by the client's --pipe, and what is there then."""
    program("cli", "flushall")
    lines = []
    for number in range(10000):
        key = f"key:{number % 1000}"
        lines += [f"SET {key} {number}", f"RPUSH list:{number % 7} {number}"]
    told = program("cli", "--pipe", stdin="\r\n".join([*lines, ""]).encode())
    return [re.findall(r"errors: \d+, replies: \d+", told), program("cli", "dbsize"),
            program("cli", "get", "key:999"), program("cli", "llen", "list:3")]


def keys(option, pattern):
    """What a look at all keys found; the order in which it found them is random."""
    return sorted(re.findall(pattern, program("cli", option), re.M))


def hot_keys():
    program("cli", "config", "set", "maxmemory-policy", "allkeys-lfu")
    for _ in range(20):
        program("cli", "-r", "500", "get", "key:1")
    return keys("--hotkeys", r"hot key found with counter: \d+\s+keyname: .*key:1\W*$") != []


def main():
    step("benchmark, whole default run", benchmark)
    step("benchmark, 16 at once, of random keys", lambda: benchmark(
        "-t", "set,get,incr,lpush,hset,mset", "-P", "16", "-r", "10000"))
    step("client --pipe", pipe)
    step("client --bigkeys", lambda: keys("--bigkeys", r"^(?:Biggest +\w+|Sampled.*|Total.*|\d+ .*)"))
    step("client --memkeys", lambda: keys("--memkeys", r"^(?:Sampled|\d+ ).*$"))
    step("client --hotkeys", hot_keys)
    step("client --scan", lambda: sorted(program("cli", "--scan", "--pattern", "list:*").split()))
    step("client, several commands by standard input", lambda: program(
        "cli", stdin=b"multi\nset a 1\nincr a\nexec\nget a\nincr list:1\nhgetall none\n"))


if __name__ == "__main__":
    main()
