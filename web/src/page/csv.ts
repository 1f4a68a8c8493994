// Tables for spreadsheets.

/** Spreadsheets run a cell that begins with one of these signs as a formula. */
function csvCell(value: string | number | null): string {
  const text = value === null ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export interface CsvColumn<Row> {
  title: string;
  /** A column without it is left out. */
  value?(row: Row): string | number | null;
}

export function toCsv<Row>(rows: Row[], columns: CsvColumn<Row>[]): string {
  const shown = columns.filter((column) => column.value);
  const lines = [shown.map((column) => csvCell(column.title)), ...rows.map((row) => shown.map((column) => csvCell(column.value!(row))))];
  return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
}
