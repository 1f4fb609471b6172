"""Makes what run.sh needs of lists of specs and of the reports of upstream's e2e suite.

    report.py focus LIST [REGEXP]          regular expressions for ginkgo's --focus that select the specs of LIST and nothing else, one per line
    report.py show REPORTS                 what became of each spec that ran, and why it failed
    report.py results LIST REPORTS SECONDS COMMIT   the results to keep: a line per spec of LIST, with a second one that says why it did not pass
    report.py document DIR                 docs/conformance.md from DIR/results/*.txt and DIR/known.txt
"""
import datetime, glob, os, re, sys
import xml.etree.ElementTree as xml

def titles(path):
    with open(path) as f: return [line.strip() for line in f if line.strip() and not line.startswith("#")]

def quote(title):
    """As Go's regexp.QuoteMeta, which knows less than Python's."""
    return re.sub(r'([\\.+*?()|\[\]{}^$])', r'\\\1', title)

def cases(reports):
    """What became of each spec: its result, how long it took, and why."""
    out = {}
    for path in sorted(glob.glob(os.path.join(reports, "junit_*.xml"))):
        for case in xml.parse(path).iter("testcase"):
            name = case.get("name")
            if not name.startswith("[It] "): continue
            why, result = "", "passed"
            for kind, said in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
                found = case.find(kind)
                if found is not None: result, why = said, (found.get("message") or found.text or "").strip()
            out[name.removeprefix("[It] ").strip()] = (result, float(case.get("time", 0)), why)
    return out

def ran(title, found):
    """A report's name may be followed by the spec's labels."""
    if title in found: return found[title]
    for name, case in found.items():
        if name.startswith(title + " [") : return case
    return None

def oneline(why):
    """In one line, with no path of the machine it ran on."""
    why = re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m", "", why)).strip().removeprefix("[FAILED] ")
    why = re.sub(r" (In \[\w+\] at: )?/\S*/k8s\.io/kubernetes@[^/]+/(\S+:\d+)( @ [\d/]+ [\d:.]+)?", r" (\2)", why)
    return why if len(why) <= 300 else why[:297] + "..."

def focus(path, only=""):
    for t in titles(path):
        if re.search(only, t): print(quote(t) + "$")

def show(reports):
    for name, (result, seconds, why) in sorted(cases(reports).items()):
        if result == "skipped" and why in ("", "skipped"): continue  # nobody asked for it
        print(f"{result} {seconds:6.1f} s  {name}")
        if why: print("    " + why.replace("\n", "\n    "))

def results(path, reports, seconds, commit):
    found, lines, count = cases(reports), [], {}
    for t in titles(path):
        result, took, why = ran(t, found) or ("failed", 0, "it did not run")
        count[result] = count.get(result, 0) + 1
        lines.append(f"{result} {took:.0f} {t}")
        if result != "passed": lines.append("    " + (oneline(why) or "no reason given"))
    said = ", ".join(f"{n} {r}" for r, n in sorted(count.items(), key=lambda c: c[0] != "passed"))
    print(f"# {sum(count.values())} specs: {said}; in {int(seconds) // 60} min {int(seconds) % 60} s on {datetime.date.today()} (commit {commit})")
    print("\n".join(lines))

INTRO = """# Upstream's e2e suite against skiff

Written by `make conformance` (test/conformance/run.sh) from test/conformance/results; do not edit. The suite is upstream's own `e2e.test` of v1.37.1, unchanged, built from its modules by `../shared/upstream/build.sh`
with stand-ins for its images (`../shared/upstream/e2e-images.py`; their programs are upstream's and Debian's, and busybox as its makers configure it). It runs against a cluster that `skiff up` starts with one node (two for `network`, `control`, `state` and `extend-two`)
on an empty disk of 40 GB (16 until 19 November 2026), in namespaces of their own; images are loaded with `skiff image load` and pulled from there. Every spec of a list is run, in one run, with none left out and none tried again: "failed" and "skipped"
are what the suite itself said, in its words or in ours (test/conformance/known.txt). Seconds are those of the spec with others beside it on two cores. `node` is the list of `../shared/upstream/node-specs.txt`,
`network` every conformance spec of sig-network, `control` those of the API server, the loops, the scheduler and the identities but for those of `extend` and `state`,
`extend` those of what users extend: custom resources, aggregation, webhooks, admission policies and storage migration; `extend-two` is the same list on two nodes; `state` those of StatefulSets, CronJobs, disruption budgets, certificates projected into pods and volumes that are images.
`external-csi` and `external-local` are the specs of External Storage, which the suite makes of what a driver says it can do (test/conformance/NAME.yaml): for the CSI driver in test/csi, with external-provisioner, -attacher, -resizer and -snapshotter
beside it in pods on one node made of namespaces, and for skiff's default StorageClass `local`; the specs that restart a kubelet by ssh are left out. "Skipped" says what the driver does not do.
"""

def conformance(directory):
    """How many of the conformance specs passed, and which did not. One that is in several lists counts once, and has to pass in each."""
    passed, others = set(), set()
    for path in glob.glob(os.path.join(directory, "results", "*.txt")):
        for line in open(path):
            if "[Conformance]" in line and not line.startswith("    "):
                result, _, title = line.strip().split(" ", 2)
                (passed if result == "passed" else others).add(title)
    said = f"Of the {len(passed | others)} specs of conformance, {len(passed - others)} passed."
    return said + "".join(f" Not so: {title}." for title in sorted(others))

def document(directory):
    known = {}
    path = os.path.join(directory, "known.txt")
    if os.path.exists(path):
        title = None
        for line in open(path):
            if line.startswith("    "): known[title] = line.strip()
            elif line.strip() and not line.startswith("#"): title = line.strip()
    print(INTRO)
    print(conformance(directory) + "\n")
    for name in sorted(os.path.basename(path).removesuffix(".txt") for path in glob.glob(os.path.join(directory, "results", "*.txt"))):
        lines = open(os.path.join(directory, "results", name + ".txt")).read().splitlines()
        print(f"## {name}\n\n{lines[0].removeprefix('# ')}.\n\n| result | s | spec |\n|---|---|---|")
        rows = []
        for line in lines[1:]:
            if line.startswith("    "):
                if rows: rows[-1][3] = line.strip()
            elif line.strip():
                result, seconds, title = line.split(" ", 2)
                rows.append([result, seconds, title, ""])
        for result, seconds, title, why in rows:
            why = known.get(title, why) if result != "passed" else ""
            text = "<br>".join("".join("\\" + c if c in "|*<>_`" else c for c in part) for part in (title, why) if part)
            print(f"| {'passed' if result == 'passed' else '**' + result + '**'} | {seconds} | {text} |")
        print()

if __name__ == "__main__":
    commands = {"focus": focus, "show": show, "results": results, "document": document}
    if len(sys.argv) < 3 or sys.argv[1] not in commands: sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
