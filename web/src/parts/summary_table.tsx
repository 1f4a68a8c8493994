// One row per policy, with the best value of every column marked.
import { useState } from "preact/hooks";
import type { Run, Summary } from "./data";
import { Swatch } from "./readout";
import { bestValue, cellText, isEmptyColumn, sortRuns, summaryColumns, type Column, type Order } from "./summary_columns";

interface Props {
  runs: Run[];
  selected: number;
  onSelect(run: number): void;
  shown: ReadonlySet<number>;
  onShow(run: number, shown: boolean): void;
}

interface Sorting {
  column: Column;
  order: Order;
}

export function SummaryTable({ runs, selected, onSelect, shown, onShow }: Props) {
  const [sorting, setSorting] = useState<Sorting>({ column: summaryColumns[0]!, order: "given" });
  const summaries = runs.map((run) => run.summary);
  const columns = visibleColumns(summaries);
  const best = new Map(columns.map((column) => [column.key, bestValue(column, summaries)]));
  const row = (run: number) => (
    <tr key={run} class={run === selected ? "is-selected" : undefined} onClick={() => onSelect(run)}>
      <PolicyCell run={runs[run]!} number={run} selected={run === selected} shown={shown.has(run)} onShow={onShow} onSelect={onSelect} />
      {columns.map((column) => (
        <ValueCell key={column.key} column={column} run={runs[run]!} best={best.get(column.key) ?? null} />
      ))}
    </tr>
  );
  return (
    <>
      <div class="scroller" tabIndex={0} role="region" aria-label="Summary of all policies">
        <table class="summary">
          <thead>
            <GroupHeads columns={columns} />
            <tr>
              {columns.map((column) => (
                <HeadCell key={column.key} column={column} sorting={sorting} onSort={setSorting} />
              ))}
            </tr>
          </thead>
          <tbody>{sortRuns(sorting.column, sorting.order, summaries).map(row)}</tbody>
        </table>
      </div>
      <Footnote runs={runs} marked={[...best.values()].some((value) => value !== null)} />
    </>
  );
}

interface VisibleColumn extends Column {
  startsGroup: boolean;
}

function visibleColumns(summaries: Summary[]): VisibleColumn[] {
  return summaryColumns
    .filter((column) => !isEmptyColumn(column, summaries))
    .map((column, i, all) => ({ ...column, startsGroup: column.group !== all[i - 1]?.group }));
}

function GroupHeads({ columns }: { columns: Column[] }) {
  const groups = [...new Set(columns.map((column) => column.group))];
  return (
    <tr class="groups">
      <th rowSpan={2} scope="col" class="policy">Policy</th>
      {groups.map((group) => (
        <th key={group} scope="colgroup" class="group-start" colSpan={columns.filter((column) => column.group === group).length}>
          {group}
        </th>
      ))}
    </tr>
  );
}

const nextOrder: Record<Order, Order> = { given: "best first", "best first": "worst first", "worst first": "given" };

function HeadCell({ column, sorting, onSort }: { column: VisibleColumn; sorting: Sorting; onSort(next: Sorting): void }) {
  const order = sorting.column.key === column.key ? sorting.order : "given";
  const ascending = (column.better === "low") === (order === "best first");
  const direction = order === "given" ? "none" : ascending ? "ascending" : "descending";
  const arrow = { none: "", ascending: "▲", descending: "▼" }[direction];
  return (
    <th scope="col" aria-sort={direction} class={column.startsGroup ? "group-start" : undefined}>
      <button type="button" title={column.help} data-column={column.key} onClick={() => onSort({ column, order: nextOrder[order] })}>
        {column.label}
        <span class="arrow" aria-hidden="true">{arrow}</span>
      </button>
    </th>
  );
}

interface PolicyCellProps {
  run: Run;
  number: number;
  selected: boolean;
  shown: boolean;
  onShow(run: number, shown: boolean): void;
  onSelect(run: number): void;
}

function PolicyCell({ run, number, selected, shown, onShow, onSelect }: PolicyCellProps) {
  return (
    <th scope="row" class="policy">
      <div class="policy-cell">
        <input
          type="checkbox"
          checked={shown}
          aria-label={`Show ${run.policy} in the charts`}
          title="Show in the charts"
          onClick={(event) => event.stopPropagation()}
          onChange={(event) => onShow(number, event.currentTarget.checked)}
        />
        <Swatch run={number} />
        <div>
          <button type="button" class="policy-name" aria-pressed={selected} onClick={() => onSelect(number)}>
            {policyParts(run.policy).map((part, i) => <span key={i} class="policy-part">{part}</span>)}
          </button>
          {run.elastic && <span class="badge" title="Changes the number of GPUs of running jobs">elastic</span>}
          {run.paper !== "" && <div class="paper">{run.paper}</div>}
        </div>
      </div>
    </th>
  );
}

/** A long policy name may be broken after its separators, not within its words. */
function policyParts(policy: string): string[] {
  return policy.match(/[^:,]+[:,]?|[:,]/g) ?? [];
}

function ValueCell({ column, run, best }: { column: VisibleColumn; run: Run; best: number | null }) {
  const value = column.value(run.summary);
  const isBest = value !== null && value === best;
  const classes = [column.startsGroup ? "group-start" : "", isBest ? "best" : ""].join(" ").trim();
  return (
    <td class={classes || undefined} data-column={column.key} data-value={value ?? ""} title={value === null ? undefined : column.exact(value, run.summary)}>
      {isBest && <span class="star" aria-hidden="true">★</span>}
      {cellText(column, run.summary)}
      {isBest && <span class="for-screen-readers"> (best)</span>}
    </td>
  );
}

function Footnote({ runs, marked }: { runs: Run[]; marked: boolean }) {
  const zero = summaryColumns
    .filter((column) => column.emptyWhenZero && runs.some((run) => column.value(run.summary) === 0))
    .filter((column) => isEmptyColumn(column, runs.map((run) => run.summary)))
    .map((column) => column.label.toLowerCase());
  return (
    <p class="quiet footnote">
      {marked && <>★ best of its column. </>}
      {zero.length > 0 && <>None under any policy: {zero.join(", ")}. </>}
      <span class="screen-only">Click a row to see that policy below. Click a heading to sort. Hover for exact figures.</span>
    </p>
  );
}
