# The first process of a machine of its own: the kernel, the disk's read-only part and /tmp are
# those of this machine, all else is new. Arguments: the folder of whoever types, the folder of the
# programs, the machine's name. Prints its process id, as the world outside knows it, when the
# machine is up.
set -e
home=$1 programs=$2 name=$3
accepted=/sys/fs/bpf/shortstop-accepted
notes=$(ls $accepted 2>/dev/null || :)
# Of the /proc outside.
read -r pid rest </proc/self/stat
mount -t tmpfs guide /mnt
mkdir /mnt/home /mnt/bin /mnt/etc /mnt/local
mount --bind "$home" /mnt/home
for program in shortstop shortstop-lab; do
	touch /mnt/bin/$program
	mount --bind "$programs/$program" /mnt/bin/$program
done
# Has the entries of a folder and can be written to.
open() {
	mount --bind "$1" "$2"
	mount -t tmpfs -o mode=755 guide "$1"
	ln -sf "$2"/* "$1/"
}
open /etc /mnt/etc
rm -rf /etc/shortstop
mkdir /etc/shortstop
open /usr/local/bin /mnt/local
for program in shortstop shortstop-lab; do
	rm -f /usr/local/bin/$program
	touch /usr/local/bin/$program
	mount --bind /mnt/bin/$program /usr/local/bin/$program
done
mount -t tmpfs -o mode=755 guide /var/lib
mount -t tmpfs -o mode=755 guide /run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
# As systemd has it. It is the same kernel as outside: what that has accepted there needs not be
# tried again, which takes seconds.
mount -t bpf bpf /sys/fs/bpf
mkdir -m 700 $accepted
[ -z "$notes" ] || (cd $accepted && mkdir -m 700 $notes)
echo "$name" >/proc/sys/kernel/hostname
ip link set lo up
echo "$pid"
# Collects what its children leave.
while :; do
	sleep 1000000 &
	wait || :
done
