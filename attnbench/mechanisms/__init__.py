"""The mechanisms, one file each; `catalogue`: from names to cards; `peers`: forms of packages."""
