// Names the drawings that tasks of MiniWoB++ use as buttons by what they show.
() => {
  const drawings = {
    ".email-actions .star": "star",
    ".email-actions .trash": "trash",
    "#open-search": "search",
    "#search-cancel, #close-email, #close-reply, #close-forward": "back arrow",
    "#send-reply, #send-forward": "send",
    ".email-reply .icon, .controls .reply": "reply",
    ".email-forward .icon": "forward",
    ".controls .retweet": "retweet",
    ".controls .like": "heart",
    ".controls .more": "more",
  };
  for (const [selector, name] of Object.entries(drawings))
    for (const element of document.querySelectorAll(selector)) {
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", name);
    }
}
