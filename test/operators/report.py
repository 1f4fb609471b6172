"""Prints docs/operators.md from the results that run.sh keeps: report.py RESULTS"""
import glob, os, sys

INTRO = """# Programs of others on skiff

Written by `make operators` (test/operators/run.sh) from test/operators/results; do not edit. Each program is built from its module, unchanged, and runs in pods with the manifests that it comes with
(its image is made of the program that was built), on a fresh cluster of one node that `skiff up` starts. What it did was checked; the lines below say what was seen.
"""

def read(path):
    found = {"name": os.path.basename(path).removesuffix(".txt"), "lines": []}
    for line in open(path).read().splitlines():
        key, _, value = line.partition(" ")
        if key in ("-", "failed:"): found["lines"].append(value if key == "-" else "**failed:** " + quote(value))
        elif key: found[key] = value
    return found

def quote(text):
    return "".join("\\" + c if c in "|*<>_`" else c for c in text)

def main(directory):
    all = [read(path) for path in sorted(glob.glob(os.path.join(directory, "*.txt")))]
    print(INTRO)
    print("| program | module | version | result | s | to run it again |\n|---|---|---|---|---|---|")
    for p in all:
        result = "ok" if p["result"] == "ok" else "**" + p["result"] + "**"
        print(f"| [{p['name']}](#{p['name']}) | `{p['module']}` | {p['version']} | {result} | {p['seconds']} | `test/operators/run.sh {p['name']}` |")
    for p in all:
        print(f"\n## {p['name']}\n\n{p['does'][:1].upper() + p['does'][1:]}. Run at commit {p['commit']}.\n")
        for line in p["lines"]: print("- " + line)

if __name__ == "__main__":
    if len(sys.argv) != 2: sys.exit(__doc__)
    main(sys.argv[1])
