// Keeps the page as new as the gateway is: a change is told by server-sent events, the page is
// fetched again, and what differs is changed in place, so that focus, scrolling and opened lists stay.
// No markup is made here: the browser parses the same page that it would show without a script.
"use strict";
(() => {
  const REFRESH = 5_000; // ms between two looks when nothing is told
  const HIDDEN = 30_000; // the same while nobody sees the page
  const GAP = 1_000; // at least between two looks
  const PATIENCE = 10_000; // for an answer
  const RETRY = [1_000, 2_000, 4_000, 8_000, 15_000];
  const SPOKEN = 4; // verdicts read out at once

  const live = document.getElementById("live");
  const lost = document.getElementById("lost");
  const said = document.getElementById("said");
  const build = document.querySelector("meta[name=build]").content;
  const wakes = new WeakMap();

  let timer = 0;
  let busy = false;
  let again = false;
  let looked = 0;
  let fresh = Date.now(); // when the page was last known to be new
  let lostAt = 0;
  let fails = 0;
  let ended = false;

  // --- looking

  function plan(after) {
    clearTimeout(timer);
    timer = setTimeout(look, after);
  }

  function soon() {
    if (busy) again = true;
    else plan(Math.max(0, looked + GAP - Date.now()));
  }

  function look() {
    busy = true;
    again = false;
    looked = Date.now();
    const request = new XMLHttpRequest();
    request.open("GET", "/");
    request.responseType = "document";
    request.timeout = PATIENCE;
    request.setRequestHeader("Accept", "text/html");
    request.onload = () => take(request);
    request.onerror = request.ontimeout = () => lose("The gateway does not answer.");
    request.onloadend = () => {
      busy = false;
      if (again) soon();
      else if (lostAt) plan(RETRY[Math.min(fails++, RETRY.length - 1)]);
      else plan(document.hidden ? HIDDEN : REFRESH);
    };
    request.send();
  }

  function take(request) {
    const page = request.response;
    if (new URL(request.responseURL).pathname === "/login") return lose("You are signed out.", "/login");
    const next = page && page.getElementById("live");
    if (request.status !== 200 || !next) return lose(`The gateway answers ${request.status}.`);
    if (page.querySelector("meta[name=build]").content !== build) return location.reload();
    fresh = Date.now();
    fails = 0;
    found();
    show(page, next);
  }

  // --- changing what differs

  function show(page, next) {
    const before = verdicts(live);
    const focus = document.activeElement;
    change(live, next);
    if (document.activeElement !== focus) {
      (focus.isConnected ? focus : document.getElementById("main")).focus({ preventScroll: true });
    }
    document.title = page.title;
    const icon = page.getElementById("icon").getAttribute("href");
    const shown = document.getElementById("icon");
    if (shown.getAttribute("href") !== icon) shown.setAttribute("href", icon);
    speak(before, verdicts(live));
  }

  function change(from, to) {
    for (const { name, value } of to.attributes) {
      if (!kept(from, name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      if (!kept(from, name) && !to.hasAttribute(name)) from.removeAttribute(name);
    }
    const byId = new Map();
    for (const child of from.children) if (child.id) byId.set(child.id, child);
    let at = from.firstChild;
    for (const want of to.childNodes) {
      const have = want.id ? byId.get(want.id) : at && !at.id && at;
      if (!have || have.nodeName !== want.nodeName) {
        from.insertBefore(document.importNode(want, true), at);
      } else {
        if (have === at) at = at.nextSibling;
        else move(from, have, at);
        if (have.nodeType === Node.ELEMENT_NODE) change(have, want);
        else if (have.data !== want.data) have.data = want.data;
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  // What the reader opened or closed is the reader's.
  function kept(element, name) {
    return name === "open" && element.nodeName === "DETAILS";
  }

  function move(parent, child, before) {
    if (parent.moveBefore) parent.moveBefore(child, before);
    else parent.insertBefore(child, before);
  }

  // --- telling

  function verdicts(root) {
    const found = new Map();
    for (const card of root.querySelectorAll("article[data-verdict]")) {
      const why = card.querySelector(".why");
      found.set(card.id, { verdict: card.dataset.verdict, why: why ? why.textContent : "" });
    }
    return found;
  }

  function speak(before, after) {
    const news = [];
    for (const [id, { verdict, why }] of after) {
      const known = before.get(id);
      if (known && known.verdict === verdict) continue;
      news.push(`${name(id)}: ${verdict}. ${why}`);
      wake(document.getElementById(id));
    }
    for (const id of before.keys()) if (!after.has(id)) news.push(`${name(id)}: not on this page any more.`);
    if (!news.length) return;
    const more = news.length - SPOKEN;
    said.textContent = news.slice(0, SPOKEN).join(" ") + (more > 0 ? ` And ${more} more.` : "");
  }

  function name(id) {
    return id.slice(id.indexOf(":") + 1);
  }

  // A card whose verdict is new is marked for a while.
  function wake(card) {
    clearTimeout(wakes.get(card));
    card.classList.add("fresh");
    wakes.set(card, setTimeout(() => card.classList.remove("fresh"), 6_000));
  }

  function clock(time) {
    return new Date(time).toISOString().slice(11, 19) + " UTC";
  }

  function lose(why, href) {
    if (!lostAt) lostAt = Date.now();
    const seconds = Math.round((Date.now() - lostAt) / 1_000);
    const title = document.createElement("strong");
    title.textContent = `Not live since ${clock(lostAt)}`;
    const text = ` (${seconds} s). ${why} What you see is as of ${clock(fresh)}. `;
    lost.replaceChildren(title, text);
    if (href) {
      const link = document.createElement("a");
      link.href = href;
      link.textContent = "Sign in";
      lost.append(link);
    } else {
      lost.append("Trying again.");
    }
    lost.hidden = false;
    document.documentElement.classList.add("stale");
    if (!document.title.startsWith("(not live) ")) document.title = `(not live) ${document.title}`;
  }

  function found() {
    if (!lostAt) return;
    lostAt = 0;
    lost.hidden = true;
    lost.replaceChildren();
    document.documentElement.classList.remove("stale");
  }

  // --- listening

  function listen() {
    const events = new EventSource("/api/v1/events?brief=true");
    events.onopen = () => ended && soon();
    events.addEventListener("report", soon);
    events.addEventListener("gone", soon);
    events.addEventListener("end", soon);
    events.onerror = () => {
      ended = true;
      soon();
      // The browser tries again by itself, unless it was refused.
      if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY[RETRY.length - 1]);
    };
  }

  document.addEventListener("visibilitychange", () => !document.hidden && soon());
  // The page as it came back from the browser's memory is old.
  addEventListener("pageshow", (event) => event.persisted && soon());
  document.documentElement.classList.add("scripted");
  listen();
  plan(REFRESH);
})();
