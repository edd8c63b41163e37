"""The HTML pages: each is one file that opens without a network; `assets` holds their templates, styles and scripts."""
