"""Was the paper right? Claims, judged by what a sweep measured."""
