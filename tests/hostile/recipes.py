"""YAML files that are not recipes, or in which a few lines expand to billions of values."""

import yaml

GOOD = {
    "name": "short",
    "data": {"name": "drawn", "terms": "none", "train": "faces"},
    "backbone": {"name": "mobilefacenet", "width": 0.25, "embedding_size": 16},
    "method": {"name": "rts"},
    "optim": {"epochs": 1, "batch_size": 16},
}


def changed(section, **fields):
    """A good recipe with some fields of a section changed."""
    recipe = {**GOOD, section: {**GOOD[section], **fields}}
    return yaml.safe_dump(recipe).encode()


def _bomb(depth):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, depth):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return ("\n".join(lines) + "\n").encode()


def _merged(depth):
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, depth):
        lines.append(f"a{level}: &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}")
    return ("\n".join(lines) + "\n").encode()


HOSTILE = {
    "nothing": b"",
    "Latin-1": "name: größe\n".encode("latin1"),
    "NUL": b"name: \0\n",
    "an alias bomb": _bomb(10),
    "a bomb of merged mappings": _merged(40),
    "a list in itself": b"name: &a [*a]\n",
    "endless nesting": b"[" * 30_000,
    "10 MB": b"# nothing\n" * 1_000_000,
    "60 KB of keys": b"".join(b"k%d: [1, {a: b}]\n" % number for number in range(3_000)),
    "an endless number": b"seed: " + b"9" * 10_000,
    "an endless base-60 number": b"seed: " + b"1:" * 5_000 + b"1",
    "an invalid date": b"name: 2001-99-99\n",
    "a Python object": b"name: !!python/object/apply:os.system [true]\n",
    "keys that are not text": b"1: 2\n[a]: 3\n",
    "a list for a mapping": b"- name\n",
    "a seed of 10^400": yaml.safe_dump({**GOOD, "seed": 10**400}).encode(),
    "a method that is a list": yaml.safe_dump({**GOOD, "method": {"name": ["rts"]}}).encode(),
    "a setting that is a number": yaml.safe_dump({**GOOD, "method": {"name": "rts", 3: 4}}).encode(),
    "a base that is a mapping": b"base: {a: b}\n",
    "a base of 10,000 letters": b"base: " + b"a" * 10_000 + b".yaml\n",
    "a base with a NUL": b'base: "a\\0.yaml"\n',
    "a base that is no recipe": b"base: casia\nmethod: [rts]\n",
    "sections that are none": b"base: casia_rts\ndata: 1\nmethod: {name: dul}\noptim: []\n",
    "an embedding of 10^12": changed("backbone", embedding_size=10**12),
    "a width of 10^12": changed("backbone", width=1e12),
    "a width that is not a number": changed("backbone", width=float("nan")),
    "heads of 10^12": changed("method", degrees=10**12),
    "infinitely many epochs": changed("optim", epochs=float("inf")),
    "a batch of 10^30": changed("optim", batch_size=10**30),
}
