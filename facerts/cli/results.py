"""Results of ``facerts evaluate`` and ``facerts compare`` as tables on the terminal."""

from __future__ import annotations

from typing import Any

from facerts.cli.output import rows_table

SHARES = (0.0, 0.05, 0.1, 0.2)


def show_verification(sections: dict[str, dict[str, Any]]) -> None:
    """Benchmarks by their pairs, and by all pairs where these were measured."""
    entries = []
    for name, section in sections.items():
        entries.append((name, section, section["interval"]))
        if "all_pairs" in section:
            entries.append((f"{name}, all pairs", section["all_pairs"], section["all_pairs"]["interval"]))
    fars = sorted(
        {far for _, section, _ in entries for far in section["tar_at_far"]}, key=float, reverse=True
    )
    rows = [
        [
            name,
            _measured(section.get("accuracy")),
            f"{section['auroc']:.4f}",
            f"{section['eer']:.4f}",
            *[_measured(section["tar_at_far"].get(far)) for far in fars],
            f"{section['genuine']:,} / {section['impostors']:,}",
        ]
        for name, section, _ in entries
    ]
    header = [
        "benchmark",
        "accuracy",
        "AUROC",
        "EER",
        *[f"TAR@FAR {far}" for far in fars],
        "genuine / impostors",
    ]
    intervals = " and ".join(dict.fromkeys(interval for *_, interval in entries))
    rows_table(f"Verification (95 % intervals: {intervals})", header, rows)


def show_reject(sections: dict[str, list[dict[str, Any]]]) -> None:
    """FNMR by the share rejected, a row for each score, set of pairs and convention."""
    rows, fmr = [], 0.0
    for name, curves in sections.items():
        for curve in curves:
            fmr = curve["fmr"]
            at = dict(zip(curve["rejected"], curve["fnmr"], strict=True))
            rows.append(
                [
                    f"{name}{', all pairs' if curve['pairs'] == 'all' else ''}, {curve['by']}, {curve['convention']}",
                    *[f"{at[share]:.4f}" for share in SHARES],
                    *[_area(curve, end) for end in ("0.2", "0.95")],
                    f"{curve['random_area']:.4f}",
                    f"{curve['oracle_area']['0.2']:.4f}",
                    f"{curve['impostors']:,}",
                ]
            )
    header = [
        "benchmark, score, threshold",
        "0 %",
        "5 %",
        "10 %",
        "20 %",
        "area to 20 %",
        "to 95 %",
        "random",
    ]
    rows_table(f"FNMR at FMR {fmr:g} by share rejected", [*header, "best, to 20 %", "impostors"], rows)


def show_identification(sections: dict[str, dict[str, Any]]) -> None:
    """A row for each gallery and pooling."""
    searches = [(name, search) for name, section in sections.items() for search in section["searches"]]
    ranks = list(dict.fromkeys(k for _, search in searches for k in search["rank"]))
    fpirs = list(dict.fromkeys(f for _, search in searches for f in search.get("fnir_at_fpir", {})))
    rows = [
        [
            f"{name}, {search['gallery']}, {search['pooling']}",
            *[_measured(search["rank"].get(k)) for k in ranks],
            *[_measured(search.get("fnir_at_fpir", {}).get(f)) for f in fpirs],
            f"{search['gallery_templates']:,}",
            f"{search['mated']:,} / {search['non_mated']:,}",
        ]
        for name, search in searches
    ]
    header = ["gallery, pooling", *[f"rank {k}" for k in ranks], *[f"FNIR@FPIR {f}" for f in fpirs]]
    rows_table("Identification (95 % intervals over people)", [*header, "templates", "mated / not"], rows)


def show_ood(section: dict[str, Any]) -> None:
    """A row for each score and source of faces."""
    rows = []
    for score, pooled in section["by"].items():
        # One source by itself is all of them.
        split = {"all": pooled, **pooled["per_source"]} if len(section["in"]) > 1 else pooled["per_source"]
        for source, numbers in split.items():
            tnr = numbers["tnr_at_tpr"]
            rows.append(
                [
                    f"{score}, {source}",
                    _number(numbers["auroc"], numbers["ci95"]["auroc"]),
                    *[_number(tnr[at], numbers["ci95"][at]) for at in ("0.90", "0.95")],
                    f"{numbers['aupr']:.4f}",
                    f"{numbers['fpr95']:.4f}",
                ]
            )
    faces, others = sum(section["in"].values()), sum(section["out"].values())
    title = f"{faces:,} faces against {others:,} others (95 % intervals over pictures)"
    rows_table(title, ["score, faces", "AUROC", "TNR@TPR90", "TNR@TPR95", "AUPR", "FPR95"], rows)


def show_ladder(sections: dict[str, dict[str, Any]]) -> None:
    """Medians by strength, a row for each kind and score."""
    for name, section in sections.items():
        rows = []
        for kind, steps in section["kinds"].items():
            rows.append(
                [f"{kind}, cosine to clean", *[f"{value:.3f}" for value in steps["cosine"]["p50"]], "", ""]
            )
            for score, measured in steps["by"].items():
                medians = [f"{value:.4g}" for value in measured["p50"]]
                falls = "yes" if measured["monotone"] else "no"
                rows.append([f"{kind}, {score}", *medians, falls, f"{measured['auroc'][-1]:.3f}"])
        header = ["kind, median of", *[f"{strength:g}" for strength in section["strength"]]]
        title = f"{name}: {section['pictures']:,} faces made worse, strength 0 to 1"
        rows_table(title, [*header, "falls", "clean above worst, AUROC"], rows)


def show_comparison(comparison: dict[str, Any]) -> None:
    """The tables, and differences from the reference: a row for each model and benchmark."""
    from facerts.report.markdown import words_of

    for table in comparison["tables"]:
        words = words_of(table)
        cells = [
            [", ".join(column[number] for column in words.values()), *map(_cell, row["cells"].values())]
            for number, row in enumerate(table["rows"])
        ]
        rows_table(f"{table['title']} (%)", [", ".join(words), *table["columns"]], cells)
    rows = [
        [
            f"{name}, {row['model']['label']}",
            *[_difference(row[key]) for key in ("accuracy", "auroc", "tar_at_far")],
        ]
        for name, entries in comparison["verification"].items()
        for row in entries
    ]
    reference = comparison["reference"]["label"]
    if rows:
        header = ["benchmark, model", "accuracy", "AUROC", "TAR at the lowest FAR"]
        rows_table(f"Difference from {reference} (95 % intervals, p)", header, rows)
    rows = [
        [
            f"{score}, {row['model']['label']}",
            _difference(numbers["auroc"]),
            _difference(numbers["tnr_at_tpr"]),
        ]
        for row in comparison["ood"]
        for score, numbers in row["by"].items()
    ]
    if rows:
        rows_table(
            f"Faces against others, difference from {reference}", ["score, model", "AUROC", "TNR@TPR95"], rows
        )


def _cell(cell: dict[str, Any] | None) -> str:
    from facerts.report.markdown import spread

    return "–" if cell is None else f"{100 * cell['value']:.2f} {spread(cell)}".rstrip()


def _difference(told: dict[str, Any]) -> str:
    low, high = told["ci95"]
    return f"{told['value']:+.4f} [{low:+.4f}, {high:+.4f}] p {told['p_value']:.3f}"


def _area(curve: dict[str, Any], end: str) -> str:
    return _number(curve["area"][end], curve.get("ci95", {}).get(end))


def _measured(told: dict[str, Any] | None) -> str:
    return "–" if told is None else _number(told["value"], told["ci95"])


def _number(value: float, interval: list[float] | None) -> str:
    return f"{value:.4f}" if interval is None else f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]"
