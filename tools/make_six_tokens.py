"""Makes testdata/six_tokens.npz from testdata/six_tokens.txt: `inputs` [6, 3] f32 and `tokens` [6], a string array.

    python tools/make_six_tokens.py testdata/six_tokens.txt testdata/six_tokens.npz
"""

import argparse
import pathlib

import numpy as np


def main():
    parser = argparse.ArgumentParser(description="Turns rows of a word and numbers into an .npz of inputs and tokens.")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()

    rows = [line.split() for line in args.text.read_text(encoding="utf-8").splitlines()]
    np.savez(args.output,
             inputs=np.array([[float(number) for number in row[1:]] for row in rows], np.float32),
             tokens=np.array([row[0] for row in rows]))


if __name__ == "__main__":
    main()
