// The search in the table of groups. Rows beyond the first are hidden by this and by nothing else: without a script all
// of them are there. How many are shown at first is an attribute of the button that shows all.
const rows = [...document.querySelectorAll('.groups tbody tr')], field = document.getElementById('search');
const count = document.getElementById('shown'), more = document.getElementById('more');
const names = rows.map(row => row.firstElementChild.textContent.toLowerCase());
const firstRows = Number(more.dataset.rows);
let all = false;
function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0, shown = 0;
  rows.forEach((row, number) => {
    const fits = words.every(word => names[number].includes(word));
    found += fits;
    row.hidden = !fits || (!all && found > firstRows);
    shown += !row.hidden;
  });
  count.textContent = `${shown} of ${rows.length} groups shown` + (words.length ? `, ${found} found` : '');
  more.hidden = shown === found;
}
document.querySelector('.find').hidden = false;
field.addEventListener('input', show);
more.addEventListener('click', () => { all = true; show(); });
show();
