// Indents JSON without parsing its values: numbers of any size, repeated keys and escapes stay as they are written.

const MOST_NESTED = 50;
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// The text with one value in a line. Text that is no JSON object or array, or that is nested too deeply, stays as it is.
export function indented(text) {
  if (!/^\s*[[{]/.test(text) || depth(text) > MOST_NESTED) return text; // the indentation of deep ones would fill the memory
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts = [];
  let level = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(level)}`;
  for (const [token] of text.matchAll(TOKENS)) {
    const isClosing = token === "}" || token === "]";
    if (isClosing) {
      level -= 1;
      parts.push(before === "{" || before === "[" ? token : line() + token);
    } else {
      const isFirst = before === "{" || before === "[";
      parts.push((isFirst || before === ",") && before !== "" ? line() + token : token);
    }
    if (token === ":") parts.push(" ");
    if (token === "{" || token === "[") level += 1;
    before = token;
  }
  return parts.join("");
}

// How deep brackets are nested, those in texts among them.
function depth(text) {
  let [now, most] = [0, 0];
  for (const each of text) {
    if (each === "[" || each === "{") most = Math.max(most, now += 1);
    else if (each === "]" || each === "}") now -= 1;
  }
  return most;
}
