# Shared by scripts that run something on another Debian, in a chroot below ${RUBATO_CLEAN:-/var/tmp/rubato-clean}. Needs
# root. The chroot sees no file of this machine except the trusted certificates and what the script copies or mounts.

# unmount_below ROOT: the newest mount first, because it may be inside an older one.
unmount_below() {
  local mounted
  awk -v root="$1/" 'index($2, root) == 1 { print $2 }' /proc/mounts | tac |
    while read -r mounted; do umount -l "$mounted"; done
}

# make_chroot RELEASE ROOT: only the base system. Its messages are in ROOT.log.
make_chroot() {
  rm -rf "$2"
  mkdir -p "$2"
  printf '==> a clean %s in %s\n' "$1" "$2"
  debootstrap --variant=minbase "$1" "$2" >"$2.log" 2>&1
}

# mount_chroot ROOT: what programs in it need of this machine.
mount_chroot() {
  mkdir -p "$1/usr/local/share/ca-certificates"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  # A machine behind a proxy may trust more certificates than Debian does.
  cp -r /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/" 2>/dev/null || true
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount --make-rslave "$1/dev"
  mount -t sysfs -o ro sysfs "$1/sys"
}

# in_chroot ROOT COMMAND...: with an environment of its own. The root is the real one of its mount namespace, not only that
# of the process: programs that make or enter namespaces themselves (the test hosts) would otherwise leave it.
in_chroot() {
  # shellcheck disable=SC2016 # the inner shell expands them
  unshare --mount sh -euc '
    mount --rbind "$1" "$1"
    cd "$1"
    shift
    mkdir -p outside
    pivot_root . outside
    cd /
    umount -l outside
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb LC_ALL=C.UTF-8 "$@"' sh "$@"
}
