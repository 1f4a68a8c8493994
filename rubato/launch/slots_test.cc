#include "rubato/launch/slots.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace rubato::launch {
namespace {

TEST(Slots, SlotsAreSpelledInOneWay) {
  EXPECT_EQ(to_slot({NodeId(12), 3}), "12.3");
  EXPECT_EQ(parse_slot("12.3"), (SlotPlace{NodeId(12), 3}));
  for (const char* wrong : {"", "1", ".", "1.", ".1", "01.2", "1.02", "-1.0", "1.64", "+1.0",
                            "1.0.0", " 1.0", "4294967296.0"}) {
    EXPECT_EQ(parse_slot(wrong), std::nullopt) << wrong;
  }
}

TEST(Slots, SlotsAndAllocationsAreTheSame) {
  const Cluster cluster = parse_cluster("2x4:a,1x2:b").value();
  Allocation gpus(GpuType(0));
  gpus.add({NodeId(0), 0b1010});
  gpus.add({NodeId(1), 0b0001});
  const std::vector<Slot> slots = {"0.1", "0.3", "1.0"};
  EXPECT_EQ(slots_of(gpus), slots);
  EXPECT_EQ(allocation_of({"1.0", "0.3", "0.1"}, cluster).value(), gpus);
  EXPECT_EQ(allocation_of({"2.1"}, cluster).value().type(), GpuType(1));
  EXPECT_TRUE(allocation_of({}, cluster).value().empty());
  EXPECT_EQ(allocation_of({"2.2"}, cluster).error().message, "the cluster has no slot \"2.2\"");
  EXPECT_EQ(allocation_of({"3.0"}, cluster).error().message, "the cluster has no slot \"3.0\"");
  EXPECT_EQ(allocation_of({"0.0", "0.0"}, cluster).error().message, "the slot 0.0 is named twice");
  EXPECT_EQ(allocation_of({"0.0", "2.0"}, cluster).error().message,
            "the slot 2.0 is of another type than 0.0");
}

RC_GTEST_PROP(Slots, EveryAllocationComesBack, ()) {
  const Cluster cluster = parse_cluster("3x64").value();
  Allocation gpus(GpuType(0));
  for (unsigned node = 0; node < 3; ++node) {
    const auto mask = *rc::gen::arbitrary<std::uint64_t>();
    if (mask != 0) gpus.add({NodeId(node), mask});
  }
  RC_ASSERT(allocation_of(slots_of(gpus), cluster).value() == gpus);
}

}  // namespace
}  // namespace rubato::launch
