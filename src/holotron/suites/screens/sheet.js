// Many small documents on one page, each in a frame: a screenshot of all costs little more than one of each.
(htmls, width, height, columns) => {
  document.open();
  document.write("<!doctype html><style>body { margin: 0 } iframe { position: absolute; border: 0 }</style><body>");
  document.close();
  window.scrollTo(0, 0);
  for (const [index, html] of htmls.entries()) {
    const frame = document.createElement("iframe");
    Object.assign(frame, { width, height, style: `left:${(index % columns) * width}px;` +
      `top:${Math.floor(index / columns) * height}px` });
    document.body.append(frame);
    const inside = frame.contentDocument;
    inside.open();
    inside.write(html);
    inside.close();
  }
}
