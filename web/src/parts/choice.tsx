// Small controls: one of a few buttons, or one of a list.

interface Props<T extends string> {
  label: string;
  options: [T, string][];
  value: T;
  onChange(value: NoInfer<T>): void;
}

export function Toggle<T extends string>({ label, options, value, onChange }: Props<T>) {
  return (
    <div class="toggle" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChange(option)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Select<T extends string>({ label, options, value, onChange }: Props<T>) {
  return (
    <label class="select">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>{text}</option>
        ))}
      </select>
    </label>
  );
}
