// The SharedWorker of the daemon's page.
import { Hub } from "./page/hub";

const hub = new Hub();
const scope = self as unknown as { onconnect: ((event: MessageEvent) => void) | null };
scope.onconnect = (event) => hub.add(event.ports[0]!);
