// The first thing that a reader without a token sees.
import { useState } from "preact/hooks";
import { messageOf, openWithToken } from "./api";
import { Problem } from "./bits";
import { connection } from "./connection";

export function Login({ problem }: { problem: string | null }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  const enter = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      connection.login(await openWithToken(token.trim()));
    } catch (error) {
      setFailed(messageOf(error));
    }
    setBusy(false);
  };
  const said = failed ?? problem;
  return (
    <main class="login card">
      <p class="overline">Rubato</p>
      <h1>Log in</h1>
      <p>Run this where the daemon runs, and open the address that it prints:</p>
      <p><code class="command">rubato page</code></p>
      <form onSubmit={enter}>
        <label for="token">Or paste a token</label>
        <input
          id="token" type="password" autocomplete="off" spellcheck={false} placeholder="rub_…"
          value={token} onInput={(event) => setToken(event.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={busy || token.trim() === ""}>Log in</button>
      </form>
      {said && <Problem>{said}</Problem>}
      <p class="quiet">
        A pasted token is used once, to get a token for this browser that ends after 12 hours. The daemon writes the
        first admin's token to <code>admin.token</code> in its state directory.
      </p>
    </main>
  );
}
