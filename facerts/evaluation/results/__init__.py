"""What a result is: models of ``facerts.result/1`` and ``facerts.comparison/1``.

The models are the definition of both formats; ``docs/results-schema.md`` and the JSON schemas beside it are generated
from them (``tools/result_schemas.py``).
"""

from facerts.evaluation.results.comparison_result import Comparison
from facerts.evaluation.results.result import Result, Sections, parse_result

__all__ = ["Comparison", "Result", "Sections", "parse_result"]
