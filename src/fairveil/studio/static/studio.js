"use strict";
/* Live progress of a job, the slider over budgets, and the preview of a point. Pages work without it, by reloading. */

const job = document.getElementById("job");
if (job) {
  const bar = job.querySelector("progress");
  const text = document.getElementById("job-text");
  const note = document.getElementById("job-note");
  const look = async () => {
    let found;
    try {
      const answer = await fetch(job.dataset.address, { headers: { accept: "application/json" } });
      if (!answer.ok) throw new Error();
      found = await answer.json();
    } catch {
      text.textContent = "The studio does not answer. The work goes on; restart the studio to see it.";
      setTimeout(look, 3000);
      return;
    }
    if (found.state !== "running") {
      location.replace(job.dataset.then);
      return;
    }
    if (found.share === null) bar.removeAttribute("value");
    else bar.value = found.share;
    text.textContent = found.text;
    note.textContent = [found.left, found.note].filter(Boolean).join(". ");
    setTimeout(look, 800);
  };
  setTimeout(look, 800);
}

const slider = document.getElementById("budget");
if (slider) {
  const told = document.getElementById("budget-told");
  const preview = document.getElementById("preview");
  const number = document.getElementById("number");
  const go = document.getElementById("release");
  let asked = 0;
  const show = () => {
    for (const part of document.querySelectorAll("[data-number]")) {
      const own = part.dataset.number === slider.value;
      if (part.classList.contains("mark")) part.classList.toggle("chosen", own);
      else part.hidden = !own;
      if (own && part.dataset.label) {
        told.textContent = part.dataset.label;
        slider.setAttribute("aria-valuetext", part.dataset.label);
        go.disabled = !part.dataset.veil;
      }
    }
    number.value = slider.value;
  };
  const load = async () => {
    const mine = ++asked;
    preview.setAttribute("aria-busy", "true");
    preview.textContent = "Drawing a sample of rows …";
    const answer = await fetch(`${preview.dataset.address}/${slider.value}`);
    const page = await answer.text();
    if (mine !== asked) return;
    preview.innerHTML = answer.ok ? page : "<p>This preview failed.</p>";
    preview.removeAttribute("aria-busy");
  };
  let timer = 0;
  slider.addEventListener("input", show);
  slider.addEventListener("change", () => { clearTimeout(timer); timer = setTimeout(load, 250); });
  for (const mark of document.querySelectorAll(".mark")) {
    mark.addEventListener("click", () => {
      slider.value = mark.dataset.number;
      show();
      slider.dispatchEvent(new Event("change"));
    });
  }
  show();
  load();
}
