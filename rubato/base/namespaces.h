// Every folder has a namespace of its own, so no two folders can define one name for two things.
//
// Each sees the names of the folders before it in the order of ARCHITECTURE.md without a qualifier.
// If two folders share a name, its own comes first, and another's is written with its folder:
// sim::Metrics. What goes over wires and what runs inside a job (wire, member, elastic, train) is
// always written with its folder.
#pragma once

namespace rubato {

namespace base {}
namespace math {
using namespace base;
}
namespace core {
using namespace math;
}
namespace model {
using namespace core;
}
namespace policy {
using namespace model;
}
namespace place {
using namespace policy;
}
namespace loop {
using namespace place;
}
namespace cells {
using namespace loop;
}
namespace sim {
using namespace cells;
}
namespace wire {
using namespace sim;
}
namespace jobfile {
using namespace sim;
}
namespace journal {
using namespace jobfile;
}
namespace launch {
using namespace journal;
}
namespace node {
using namespace launch;
}
namespace engine {
using namespace node;
}
namespace api {
using namespace engine;
}
namespace http {
using namespace api;
}
namespace client {
using namespace http;
}
namespace daemon {
using namespace http;
}
namespace member {
using namespace core;
}
namespace elastic {
using namespace model;
}
namespace train {
using namespace model;
}

// Outside of rubato/.
namespace cmd {
using namespace client;
using namespace daemon;
}  // namespace cmd
namespace bench {
using namespace daemon;
}
namespace fuzz {
using namespace daemon;
}

}  // namespace rubato
