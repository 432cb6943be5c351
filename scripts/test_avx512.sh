#!/usr/bin/env bash
# Runs the tests of target AVX3 of an existing build on a machine with AVX-512 that Bochs emulates, for those whose own machine has none. A kernel
# of Debian's starts from a CD image with the tests in its first file system; what they print comes over the serial line, and stays in
# BUILD/avx512/serial.txt. Some hundred times as slow as a CPU: a quarter of an hour for all. Bochs 2.7 has no avx512_bf16, so AVX3_BF16 is skipped, and
# rounds 2⁻²⁵ to the f16 2⁻²⁴ instead of 0: the test that finds that is left out.
# Needs: bochs bochs-term bochsbios vgabios busybox-static cpio grub-pc-bin mtools xorriso.
#   scripts/test_avx512.sh BUILD [TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: scripts/test_avx512.sh BUILD [TEST...]" >&2; exit 1; }
build=$(cd "$1" && pwd)
shift
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(targets_test exp2_test softmax_f32_test stored_rows_test fused_prefill_f32_test fused_decode_f32_test
                                fused_backward_f32_test edges_test equivalence_test gradient_equivalence_test weights_test summary_test)
work=$build/avx512
root=$work/root
mkdir -p "$work/iso/boot/grub"

if [ ! -e "$work/iso/boot/vmlinuz" ]; then
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$package" && dpkg-deb -x "$package"_*.deb kernel)
  cp "$work"/kernel/boot/vmlinuz-* "$work/iso/boot/vmlinuz"
fi

# The first file system: busybox, the tests and their libraries.
rm -rf "$root"
mkdir -p "$root"/{bin,dev,lib,lib64,proc,tests,tmp}
cp /bin/busybox "$root/bin/"
for test in "${tests[@]}"; do
  binary=$(find "$build" -path "$work" -prune -o -type f -name "$test" -print -quit)
  [ -n "$binary" ] || { echo "$test: not in $build; build it first" >&2; exit 1; }
  strip -o "$root/tests/$test" "$binary"
  ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
    case $library in /lib64/*) cp -Lu "$library" "$root/lib64/" ;; *) cp -Lu "$library" "$root/lib/" ;; esac
  done
done
cat >"$root/init" <<INIT
#!/bin/busybox sh
export PATH=/bin LD_LIBRARY_PATH=/lib OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export REGARD_TEST_SEED=${REGARD_TEST_SEED:-1-20} GTEST_FILTER=${GTEST_FILTER:-*AVX3*-*AreRoundedAsNumbersAre*} GTEST_BRIEF=1 GTEST_COLOR=no
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
cd /tests
busybox grep -q avx512dq /proc/cpuinfo && echo "AVX-512: there"
for test in ${tests[*]}; do
  echo "== \$test"
  ./\$test && echo "\$test: passed"
done 2>&1
echo "all have run"
busybox sleep 3  # the line is slow
busybox poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/iso/boot/root.cpio"

# Bochs 2.7 states another size of XSAVEC's area than it uses; without XSAVEC and XSAVES (321, 323) Linux keeps
# AVX-512 on.
cat >"$work/iso/boot/grub/grub.cfg" <<'GRUB'
set timeout=0
menuentry tests {
  linux /boot/vmlinuz console=ttyS0 quiet mitigations=off tsc=reliable lpj=1000000 random.trust_cpu=on clearcpuid=321,323
  initrd /boot/root.cpio
}
GRUB
grub-mkrescue -o "$work/tests.iso" "$work/iso" >"$work/grub-mkrescue.log" 2>&1
cat >"$work/bochsrc" <<BOCHS
display_library: term
cpu: model=corei7_skylake_x, count=1, ips=100000000, reset_on_triple_fault=0, ignore_bad_msrs=1
megs: 1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$work/tests.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial.txt
clock: sync=none, time0=local
log: $work/bochs.log
panic: action=fatal
plugin_ctrl: sb16=0, es1370=0, speaker=0
BOCHS
echo c >"$work/start.txt"  # Debian's Bochs begins in its debugger: continue
rm -f "$work/serial.txt"
# Its screen is a terminal's.
TERM=xterm python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' bochs -q -f "$work/bochsrc" -rc "$work/start.txt" >"$work/screen.txt" </dev/null || true

cat "$work/serial.txt"
grep -q "AVX-512: there" "$work/serial.txt" || { echo "the emulated machine has no AVX-512" >&2; exit 1; }
for test in "${tests[@]}"; do
  grep -q "^$test: passed" "$work/serial.txt" || { echo "$test failed" >&2; exit 1; }
done
