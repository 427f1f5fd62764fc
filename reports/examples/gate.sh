#!/bin/sh
# A repository that has nothing to do with attention: a commit makes a function slower, and the
# check refuses it. In continuous integration the last command is a step of the workflow.
set -eu
folder=$(mktemp -d)
cd "$folder"
git init --quiet --initial-branch main
git config user.name "A developer"
git config user.email developer@example.com
mkdir shop
cat > shop/code.py <<'PYTHON'
WORDS = [f"word{number % 997}" for number in range(20_000)]


def index():
    """The places of every word."""
    places = {}
    for place, word in enumerate(WORDS):
        places.setdefault(word, []).append(place)
    return places
PYTHON
touch shop/__init__.py
git add . && git commit --quiet --message "An index of words"
git checkout --quiet -b slower
sed -i 's/places.setdefault(word, \[\]).append(place)/places[word] = [*places.get(word, []), place]/' \
    shop/code.py
git commit --quiet --all --message "Build each list anew"
code=0
attnbench check --base main --call shop.code:index --budget "${BUDGET:-60s}" || code=$?
# 1: the function is slower than in main
test "$code" -eq 1
