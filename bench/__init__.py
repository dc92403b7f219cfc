"""The benchmark: the book beside what people use instead, measured in the same run.

    python -m bench                  everything
    python -m bench compute load     some sections; the others keep what an earlier run measured

No part of the book imports this.
"""
