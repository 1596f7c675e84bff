// A search field above every long table (scripts/docs_links.py): rows that contain all words stay.
for (const box of document.querySelectorAll("div.searchable")) {
  const rows = [...box.querySelectorAll("tbody tr")];
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `search ${rows.length} rows`;
  field.setAttribute("aria-label", "search the table");
  field.style.cssText = "width:100%;padding:.4rem .6rem;font:inherit;color:inherit;background:transparent;border:1px solid currentColor";
  const count = document.createElement("p");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    const shown = rows.filter((row) => !(row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word))));
    count.textContent = field.value ? `${shown.length} of ${rows.length} rows` : "";
  });
  box.prepend(field, count);
}
