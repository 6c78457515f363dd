"""The command line of every program here; see the README one folder up."""

import argparse


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--max-body", type=int, required=True)
    parser.add_argument("--invisible-seconds", type=int, required=True)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--limit-seconds", type=int, default=180)
    return parser.parse_args()
