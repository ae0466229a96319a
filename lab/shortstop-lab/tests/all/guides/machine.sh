# The first process of a machine of its own: the kernel, the disk's read-only part and /tmp are
# those of this machine, all else is new. Arguments: the folder of whoever types, the folder of the
# programs, the machine's name. Prints its process id, as the world outside knows it, when the
# machine is up.
set -e
home=$1 programs=$2 name=$3
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
	for file in "$2"/*; do
		ln -sf "$file" "$1/"
	done
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
# As after a boot: without a file system of BPF, which a switch mounts for itself.
mount -t sysfs sysfs /sys
echo "$name" >/proc/sys/kernel/hostname
ip link set lo up
echo "$pid"
# Collects what its children leave.
while :; do
	sleep 1000000 &
	wait || :
done
