#!/usr/bin/env bash
# Writes README, the guide and the pages beside it as one static site to target/docs/site. `make docs` calls it with the
# path of mdbook. The pages stay where they are; links between them are adapted to the site.
set -euo pipefail
cd "$(dirname "$0")/.."
mdbook=$(realpath "$1")
book=target/docs
rm -rf "$book"
mkdir -p "$book/src/results"
cp .github/book.toml .github/docs.css "$book/"
cp results/*.svg "$book/src/results/"
cp .github/Containerfile "$book/src/Containerfile.txt"

# The pages in order, as names on the site and files. The guide has the order of src/guide.rs.
pages() {
    echo "index README.md"
    sed -n 's/.*include_str!("guide\/\(.*\)\.md").*/\1 src\/guide\/\1.md/p' src/guide.rs
    echo "results/index results/README.md"
    echo "cuda cuda/README.md"
    echo "contributing .github/CONTRIBUTING.md"
    echo "changes .github/CHANGELOG.md"
}

# Prints the page of a name and a file with the addresses that other pages have on the site.
adapted() {
    local from_site from_file script
    from_site=$(dirname "$1") from_file=$(dirname "$2")
    script=$({ pages; echo "Containerfile .github/Containerfile"; } | while read -r name file; do
        case $file in *.md) name+=.md ;; *) name+=.txt ;; esac
        old=$(realpath -m --relative-to="$from_file" "$file") new=$(realpath -m --relative-to="$from_site" "$name")
        printf 's|](%s\\([)#]\\)|](%s\\1|g\n' "${old//./\\.}" "$new"
    done)
    sed "$script" "$2"
}

{
    echo "# Summary"
    pages | while read -r name file; do
        title=$(sed -n 's/^# //p' "$file" | head -n 1)
        echo "- [$title]($name.md)"
    done
} > "$book/src/SUMMARY.md"
pages | while read -r name file; do
    adapted "$name" "$file" > "$book/src/$name.md"
done
"$mdbook" build "$book"
echo "open $book/site/index.html"
