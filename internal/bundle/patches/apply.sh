#!/bin/bash
# apply.sh DIRECTORY PATCH: applies a patch of this folder to a copy of a module. A patch that does not fit to the letter is an error: when a module is
# updated its patch is looked at again.
set -euo pipefail
patch=$(cd "$(dirname "$0")" && pwd)/$2
cd "$1"
export GIT_CEILING_DIRECTORIES=$(dirname "$PWD") # the copy is no part of skiff's repository
git apply "$patch" || { echo "$2 no longer applies to $1: look at what changed in the module and make the patch again" >&2; exit 1; }
git apply --check --reverse "$patch" # git passes over files that it takes for ones outside the folder
