#!/usr/bin/env bash
# Packs a binary with its manual pages, completions and licences into dist/NAME.tar.gz, whose bytes depend on nothing
# else: archive.sh NAME BINARY COMMAND, where COMMAND is a build of the same version that runs on this machine. Binary and
# command are called NAME up to its first digit, so that dsf-cuda can be installed beside dsf.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 binary=$2 host=$3
program=${name%%-[0-9]*}
folder=target/archives/$name

rm -rf "$folder"
mkdir -p dist "$folder"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
install -m 755 "$binary" "$folder/$program"
install -m 644 LICENSE .github/THIRD-PARTY.md .github/CHANGELOG.md "$folder"
"$host" man --to "$folder/share/man/man1" >/dev/null
"$host" completions bash > "$folder/share/bash-completion/completions/dsf"
"$host" completions zsh > "$folder/share/zsh/site-functions/_dsf"
"$host" completions fish > "$folder/share/fish/vendor_completions.d/dsf.fish"
chmod -R u=rwX,go=rX "$folder"
tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --format=ustar \
    -C target/archives -cf - "$name" | gzip -9n > "dist/$name.tar.gz"
