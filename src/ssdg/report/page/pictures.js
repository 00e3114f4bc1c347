// Domain pictures.
function drawPictures() { return null; }
