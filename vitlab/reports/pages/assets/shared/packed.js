/* What vitlab/reports/packing.py packed: rows of `width` values each, one after the other. */
"use strict";
const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
function unpacked({ levels, largest }, width) {
  const most = new Float32Array(bytes(largest).buffer);
  return Float32Array.from(bytes(levels), (level, i) => level * most[Math.floor(i / width)] / 255);
}
