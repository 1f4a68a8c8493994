// A table of live rows: sorted by a column, moved through with j and k, exported as CSV. Its state is in the address.
// Of a long table, only the rows in view are in the document.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { toCsv, type CsvColumn } from "./csv";
import { route } from "./route";
import { settings } from "./settings";

export interface Column<Row> {
  name: string;
  title: string;
  /** Right-aligned digits. */
  number?: boolean;
  /** In pixels. If a table has them, its columns stay where they are when its rows change. */
  width?: number;
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

/** A table with more rows is long: all its rows are one line high. */
const mostShortRows = 50;
const rowHeight = 36;
/** Rows above and below the view. */
const extraRows = 12;

export function Table<Row>(props: Props<Row>) {
  const { name, label, rows, columns, all = columns, keyOf, address, classOf, empty, children } = props;
  const sort = route.get(`${name}-sort`) ?? props.sort ?? "";
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  const body = useRef<HTMLTableSectionElement>(null);
  const table = useRef<HTMLTableElement>(null);
  const long = sorted.length > mostShortRows;
  const [first, last] = useRowsInView(table, long, sorted.length);
  const shown = long ? sorted.slice(first, last) : sorted;
  useRowKeys(body, address !== undefined);
  const widths = columns.reduce((sum, column) => sum + (column.width ?? NaN), 0);

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
          <table
            ref={table} class={`${long ? "is-long" : ""} ${Number.isNaN(widths) ? "" : "is-fixed"}`} aria-rowcount={long ? sorted.length + 1 : undefined}
            style={Number.isNaN(widths) ? undefined : { "--least-width": `${widths}px` }}
          >
            {!Number.isNaN(widths) && <colgroup>{columns.map((column) => <col key={column.name} style={{ "--width": `${column.width}px` }} />)}</colgroup>}
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
            {long && <Space rows={first} />}
            <tbody ref={body}>
              {shown.map((row, i) => (
                <TableRow
                  key={keyOf(row)} row={row} columns={columns} kind={classOf?.(row)} address={address?.(row)} zone={settings.zone}
                  place={long ? first + i + 2 : undefined}
                />
              ))}
            </tbody>
            {long && <Space rows={sorted.length - last} />}
          </table>
        </div>
      )}
    </>
  );
}

/** The room of rows that are not in view. */
function Space({ rows }: { rows: number }) {
  return rows > 0 ? <tbody aria-hidden="true"><tr style={{ height: `${rows * rowHeight}px` }} /></tbody> : null;
}

/** The rows of a long table that are in view, as first and last. Only scrolling looks where the table is. */
function useRowsInView(table: { current: HTMLElement | null }, on: boolean, count: number): [number, number] {
  const [block, setBlock] = useState(0);
  useLayoutEffect(() => {
    if (!on) return;
    let frame = 0;
    const look = () => {
      frame = 0;
      const above = -(table.current?.getBoundingClientRect().top ?? 0);
      setBlock(Math.max(0, Math.floor(above / rowHeight / extraRows)));
    };
    const soon = () => (frame ||= requestAnimationFrame(look));
    look();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [on]);
  const inView = Math.ceil(innerHeight / rowHeight) + 3 * extraRows;
  const last = Math.min(count, (block - 1) * extraRows + inView);
  return [Math.max(0, Math.min((block - 1) * extraRows, last - inView)), last];
}

interface RowProps<Row> {
  row: Row;
  columns: Column<Row>[];
  kind: string | undefined;
  address: string | undefined;
  zone: string;
  /** Its number in a long table, for screen readers. */
  place: number | undefined;
}

/** Rendered again only if its row is another one: of many rows, few change at a time. */
class TableRow<Row> extends Component<RowProps<Row>> {
  shouldComponentUpdate(next: RowProps<Row>): boolean {
    const { row, columns, kind, address, zone, place } = this.props;
    return row !== next.row || columns !== next.columns || kind !== next.kind || address !== next.address || zone !== next.zone || place !== next.place;
  }

  render({ row, columns, kind, address, place }: RowProps<Row>) {
    const open = (event: KeyboardEvent) => {
      if (event.key === "Enter" && event.target === event.currentTarget && address) route.go(address);
    };
    return (
      <tr class={kind} tabIndex={address ? -1 : undefined} aria-rowindex={place} onKeyDown={open}>
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

export function exportCsv<Row>(name: string, rows: Row[], columns: CsvColumn<Row>[]): void {
  saveAs(new Blob([toCsv(rows, columns)], { type: "text/csv" }), `rubato-${name}.csv`);
}

export function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
