// The fields of the submit form as a job file, and as the command line that means the same.

export interface Fields {
  command: string;
  name: string;
  directory: string;
  min: string;
  max: string;
  deadline: string;
  work: string;
  unit: "steps" | "epochs" | "samples";
  profile: string;
}

export const emptyFields: Fields = { command: "", name: "", directory: "", min: "1", max: "", deadline: "", work: "", unit: "steps", profile: "" };

/** Words as a shell splits them: quotes and backslashes, but no expansion, because no shell reads the command. */
export function splitWords(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (quote === "'") {
      if (c === "'") quote = "";
      else word += c;
    } else if (quote === '"') {
      if (c === '"') quote = "";
      else if (c === "\\" && /["\\$`]/.test(text[i + 1] ?? "")) word += text[++i]!;
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      word ??= "";
    } else if (c === "\\" && i + 1 < text.length) word = (word ?? "") + text[++i]!;
    else if (/\s/.test(c)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + c;
  }
  if (quote !== "") return null;
  if (word !== null) words.push(word);
  return words;
}

export function jobOf(fields: Fields): Record<string, unknown> {
  const job: Record<string, unknown> = { command: splitWords(fields.command) ?? [fields.command] };
  if (fields.name) job.name = fields.name;
  if (fields.profile) job.profile = fields.profile;
  if (fields.directory) job.directory = fields.directory;
  if (fields.deadline) job.goal = { deadline: fields.deadline };
  if (fields.work) job.work = { [fields.unit]: Number(fields.work) };
  const gpus: Record<string, number> = {};
  if (fields.min) gpus.min = Number(fields.min);
  if (fields.max) gpus.max = Number(fields.max);
  if (Object.keys(gpus).length > 0) job.gpus = gpus;
  return job;
}

export function commandLine(fields: Fields): string {
  const words = ["rubato", "submit"];
  const add = (flag: string, value: string) => value && words.push(flag, quoted(value));
  add("--name", fields.name);
  add("--profile", fields.profile);
  // Without it the command line takes the directory in which it is run, and the API the user's home.
  if (fields.directory) add("--directory", fields.directory);
  else words.push("--directory", "~");
  add("--work", fields.work && `${fields.unit}=${fields.work}`);
  add("--gpus", fields.min || fields.max ? (fields.max ? `${fields.min || 1}:${fields.max}` : `${fields.min || 1}:`) : "");
  add("--deadline", fields.deadline);
  words.push("--", ...(splitWords(fields.command) ?? [fields.command]).map(quoted));
  return words.join(" ");
}

/** As a shell would have to be given the word. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}
