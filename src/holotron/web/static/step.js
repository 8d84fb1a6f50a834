// One step in words and numbers: what was thought, done and said, how long it took and what it cost.

import { copyText, announce, h, icon } from "./dom.js";
import { count, duration, moment, reward, version } from "./format.js";
import { OUTCOME_WORDS } from "./filter.js";

/** The panel beside the screenshot. */
export function stepPanel(step, view, number, total) {
  const { observation: seen, output, result, timings } = step;
  return [
    h("header", { class: "step-head" },
      h("p", { class: "kicker" }, `Step ${number} of ${total}`, h("span", {}, duration(timings.observe + timings.think + timings.act))),
      h("h2", { class: "sentence", dir: "auto" }, view.sentence)),
    (!result.ok || result.error) && callout("error", "Error", result.error || "The action failed."),
    seen.notices.map((notice) => callout("notice", "Notice", notice)),
    step.feedback !== null && callout("feedback", "Validator", step.feedback),
    step.thought && section("Thought", h("p", { class: "prose", dir: "auto" }, step.thought)),
    step.note && section("Note", h("p", { class: "prose", dir: "auto" }, step.note)),
    step.action && section("Action", h("div", { class: "code-box" },
      h("pre", { class: "code", tabindex: "0", "aria-label": "Action as JSON" }, h("code", {}, breakable(step.action.text))),
      copyButton(step.action.text))),
    section("Time", timeBar(timings)),
    output && section("Tokens", tokenTable(output)),
    output && section("Model text", output.text
      ? h("pre", { class: "code wrapped", tabindex: "0", "aria-label": "Model text" }, output.text)
      : h("p", { class: "quiet" }, output.redacted ? "Held a secret and was not kept." : "Empty.")),
    section("Page", facts([
      ["Title", seen.title],
      ["Address", seen.url],
      ["Tabs", seen.tabs.length > 1 ? seen.tabs.join("\n") : ""],
      ["Screenshot", `${seen.width} × ${seen.height}`],
      ["Reward so far", result.reward === null ? "" : reward(result.reward)],
    ])),
  ].flat().filter(Boolean);
}

/** What is true of the whole episode. */
export function episodePanel(episode, row) {
  const { task, policy, environment, outcome } = episode;
  const lines = (values) => Object.entries(values).map(([name, value]) => `${name}: ${value}`).join("\n");
  return section("Episode", facts([
    ["Task", task.text],
    ["Start", task.url],
    ["Benchmark", [task.benchmark, task.name].filter(Boolean).join(" / ")],
    ["Seed", row.seed],
    ["Sample", task.sample ? String(task.sample) : ""],
    ["Outcome", OUTCOME_WORDS[row.outcome] + (outcome ? ` · ${outcome.reason.replace("_", " ")}` : "")],
    ["Detail", outcome?.detail],
    ["Reward", outcome && outcome.reward !== null ? reward(outcome.reward) : ""],
    ["Policy", policy.model],
    ["Weights", row.weights],
    ["Sampling", lines(policy.sampling)],
    ["Environment", [environment.name, environment.browser].filter(Boolean).join(" · ")],
    ["Viewport", environment.viewport ? environment.viewport.join(" × ") : ""],
    ["Started", moment(episode.started)],
    ["Ended", moment(episode.ended)],
    ["More", lines({ ...task.extra, ...policy.extra, ...environment.extra })],
    ["Id", episode.id],
  ]));
}

export function callout(kind, title, text) {
  return h("div", { class: `callout callout-${kind}` },
    h("strong", {}, title), h("p", { dir: "auto" }, text));
}

function section(title, ...children) {
  return h("section", { class: "block" }, h("h3", {}, title), ...children);
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, value))));
}

/** JSON that may be broken after its commas and nowhere else, if it is short enough to matter. */
function breakable(text) {
  return text.length > 2000 ? text : text.split(/(?<=[,{])/).flatMap((part) => [part, h("wbr")]);
}

function copyButton(text) {
  const button = h("button", { class: "icon-button copy", type: "button", "aria-label": "Copy action", title: "Copy action (c)" }, icon("copy"));
  button.addEventListener("click", async () => {
    const copied = await copyText(text);
    announce(copied ? "Action copied" : "The action could not be copied");
    button.classList.toggle("copied", copied);
    button.replaceChildren(icon(copied ? "success" : "failed"));
    setTimeout(() => {
      button.classList.remove("copied");
      button.replaceChildren(icon("copy"));
    }, 1500);
  });
  return button;
}

function timeBar(timings) {
  const parts = [["observe", timings.observe], ["think", timings.think], ["act", timings.act]];
  const bar = h("div", { class: "bar", "aria-hidden": "true" });
  for (const [name, seconds] of parts) {
    const piece = h("span", { class: `time-${name}` });
    piece.style.flexGrow = String(seconds * 1000); // a sum below 1 would leave a gap
    bar.append(piece);
  }
  return [bar, h("ul", { class: "legend" }, parts.map(([name, seconds]) =>
    h("li", {}, h("span", { class: `swatch time-${name}` }), name, " ", h("b", {}, duration(seconds)))))];
}

function tokenTable(output) {
  const { prompt_tokens: prompt, cached_tokens: cached, token_ids: ids, logprobs } = output;
  const known = (value) => value !== null && value !== undefined;
  const mean = logprobs?.length ? logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length : null;
  const figures = [
    ["prompt", known(prompt) ? count(prompt) : null],
    ["cached", known(cached) ? count(cached) : null],
    ["generated", ids ? count(ids.length) : null],
    ["mean log-prob", mean === null ? null : mean.toFixed(3)],
    ["weights", known(output.weight_version) ? version(output.weight_version) : null],
    ["finish", output.finish_reason],
  ].filter(([, value]) => value);
  const bar = h("div", { class: "bar", "aria-hidden": "true" });
  if (prompt && known(cached)) {
    for (const [name, tokens] of [["cached", cached], ["computed", prompt - cached]]) {
      const piece = h("span", { class: `tokens-${name}`, title: `${count(tokens)} ${name}` });
      piece.style.flexGrow = String(Math.max(0, tokens));
      bar.append(piece);
    }
  }
  const list = h("ul", { class: "legend figures" }, figures.map(([name, value]) => h("li", {}, name, " ", h("b", {}, value))));
  return figures.length ? [bar.children.length ? bar : null, list] : h("p", { class: "quiet" }, "Not counted.");
}
