// A table of live rows: sorted by a column, moved through with j and k, exported as CSV. Its state is in the address.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { formatCount } from "../parts/format";
import { toCsv } from "./csv";
import { route } from "./route";
import { settings } from "./settings";

export interface Column<Row> {
  name: string;
  title: string;
  /** Right-aligned digits. */
  number?: boolean;
  cell(row: Row): ComponentChildren;
  /** What to sort by and to export; null sorts last. Without it the column cannot be sorted. */
  value?(row: Row): string | number | null;
}

interface Props<Row> {
  /** Tells apart the tables of one view, in the address and in the name of the exported file. */
  name: string;
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  /** The columns of an export, if it has more. */
  all?: Column<Row>[];
  keyOf(row: Row): string | number;
  /** Where j, k and Enter lead. */
  address?(row: Row): string;
  classOf?(row: Row): string | undefined;
  /** "slack" or "-slack". */
  sort?: string;
  empty: string;
  children?: ComponentChildren;
}

const rowsAtFirst = 100;

export function Table<Row>(props: Props<Row>) {
  const { name, label, rows, columns, all = columns, keyOf, address, classOf, empty, children } = props;
  const sort = route.get(`${name}-sort`) ?? props.sort ?? "";
  const most = Number(route.get(`${name}-rows`)) || rowsAtFirst;
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  const shown = sorted.slice(0, most);
  const body = useRef<HTMLTableSectionElement>(null);
  useRowKeys(body, address !== undefined);

  const sortBy = (column: string) => {
    const next = sort === column ? `-${column}` : sort === `-${column}` ? null : column;
    route.set({ [`${name}-sort`]: next });
  };
  return (
    <>
      <div class="table-head">
        <p class="quiet">{children}</p>
        <button type="button" class="plain" disabled={rows.length === 0} onClick={() => exportCsv(name, sorted, all)}>
          Export CSV
        </button>
      </div>
      {rows.length === 0 ? (
        <p class="empty">{empty}</p>
      ) : (
        <div class="scroller" tabIndex={0} role="region" aria-label={label}>
          <table>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th key={column.name} class={column.number ? "number" : undefined} aria-sort={orderOf(sort, column.name)} scope="col">
                    {column.value ? (
                      <button type="button" onClick={() => sortBy(column.name)}>
                        {column.title}
                        <span class="arrow" aria-hidden="true">{arrowOf(sort, column.name)}</span>
                      </button>
                    ) : (
                      column.title
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody ref={body}>
              {shown.map((row) => (
                <TableRow key={keyOf(row)} row={row} columns={columns} kind={classOf?.(row)} address={address?.(row)} zone={settings.zone} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {sorted.length > most && (
        <button type="button" class="plain more" onClick={() => route.set({ [`${name}-rows`]: String(most * 5) })}>
          Show more: {formatCount(most)} of {formatCount(sorted.length)} are shown
        </button>
      )}
    </>
  );
}

interface RowProps<Row> {
  row: Row;
  columns: Column<Row>[];
  kind: string | undefined;
  address: string | undefined;
  zone: string;
}

/** Rendered again only if its row is another one: of many rows, few change at a time. */
class TableRow<Row> extends Component<RowProps<Row>> {
  shouldComponentUpdate(next: RowProps<Row>): boolean {
    const { row, columns, kind, address, zone } = this.props;
    return row !== next.row || columns !== next.columns || kind !== next.kind || address !== next.address || zone !== next.zone;
  }

  render({ row, columns, kind, address }: RowProps<Row>) {
    const open = (event: KeyboardEvent) => {
      if (event.key === "Enter" && event.target === event.currentTarget && address) route.go(address);
    };
    return (
      <tr class={kind} tabIndex={address ? -1 : undefined} onKeyDown={open}>
        {columns.map((column) => (
          <td key={column.name} class={column.number ? "number" : undefined}>{column.cell(row)}</td>
        ))}
      </tr>
    );
  }
}

function sortRows<Row>(rows: Row[], columns: Column<Row>[], sort: string): Row[] {
  const down = sort.startsWith("-");
  const value = columns.find((column) => column.name === sort.replace(/^-/, ""))?.value;
  if (!value) return rows;
  const keyed = rows.map((row) => ({ row, key: value(row) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null ? 1 : 0) - (b.key === null ? 1 : 0);
    return (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * (down ? -1 : 1);
  });
  return keyed.map(({ row }) => row);
}

function orderOf(sort: string, column: string): "ascending" | "descending" | undefined {
  return sort === column ? "ascending" : sort === `-${column}` ? "descending" : undefined;
}

function arrowOf(sort: string, column: string): string {
  return sort === column ? "▲" : sort === `-${column}` ? "▼" : "";
}

/** j and k move the focus through the rows. */
function useRowKeys(body: { current: HTMLElement | null }, on: boolean): void {
  useEffect(() => {
    if (!on) return;
    const press = (event: KeyboardEvent) => {
      if ((event.key !== "j" && event.key !== "k") || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
      const rows = [...(body.current?.children ?? [])] as HTMLElement[];
      const at = rows.findIndex((row) => row.contains(document.activeElement));
      const next = rows[at < 0 ? 0 : at + (event.key === "j" ? 1 : -1)];
      if (!next) return;
      event.preventDefault();
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [on]);
}

export function isTyping(event: Event): boolean {
  const target = event.target as HTMLElement | null;
  return target !== null && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable);
}

function exportCsv<Row>(name: string, rows: Row[], columns: Column<Row>[]): void {
  saveAs(new Blob([toCsv(rows, columns)], { type: "text/csv" }), `rubato-${name}.csv`);
}

export function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
