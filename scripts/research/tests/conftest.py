"""Makes the imports of the commands work from any working directory."""

import sys
from pathlib import Path

RESEARCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(RESEARCH), str(RESEARCH.parent)]
