"""Was the paper right? What papers assert, as checks that are judged by what a sweep measured."""
