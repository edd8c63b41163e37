"""What draws figures: matplotlib for SVG and PNG files, plotly for pages and W&B."""
