// Thumbnails of pseudo-labeled images.
function drawObservatory() { return null; }
