"""Figures: functions that give Altair charts of the results' frames, and what an analysis found as charts."""
