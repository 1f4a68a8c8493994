"""Scores policies in files, as a program that searches for policies would do.

    python3 search_policies.py FILE...
"""

import sys

import rubato


def main():
    scored = sorted(((rubato.evaluate(path), path) for path in sys.argv[1:]), key=lambda one: -one[0].score)
    for scores, path in scored:
        print(f"{scores.score:.4f}  {path}  {scores}")


if __name__ == "__main__":
    main()
