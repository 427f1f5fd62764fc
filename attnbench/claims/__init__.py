"""Was the paper right? Claims of papers, as checks that are judged by what a sweep measured."""
