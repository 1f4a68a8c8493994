#include "rubato/cells/quotas.h"

#include <bit>
#include <gtest/gtest.h>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/core/testing.h"

namespace rubato::cells {
namespace {

TenantCells quota(const std::string& tenant, std::string_view cells, const Cluster& cluster,
                  std::vector<std::string> members = {}) {
  return {tenant, parse_cells(cells, cluster).value(), std::move(members)};
}

std::string why_not(std::string_view cells, const Cluster& cluster) {
  const auto parsed = parse_cells(cells, cluster);
  return parsed ? "" : parsed.error().message;
}

TEST(Quotas, CellsAreWholeNodesOrTheirHalves) {
  const Cluster cluster = cluster_of("4x8");
  EXPECT_EQ(parse_cells("2xnode, 1x4,3x1", cluster).value(), (std::vector<Cell>{{GpuType(), 8},
                                                                                {GpuType(), 8},
                                                                                {GpuType(), 4},
                                                                                {GpuType(), 1},
                                                                                {GpuType(), 1},
                                                                                {GpuType(), 1}}));
  EXPECT_EQ(text_of(parse_cells("2xnode,1x4,3x1", cluster).value(), cluster), "2x8,1x4,3x1");
  EXPECT_EQ(
      why_not("1x3", cluster),
      "cells \"1x3\": \"3\" is not the size of a cell, which is one of node, 8, 4, 2, 1; write "
      "COUNTxSIZE[:TYPE][,...], for example 2xnode,1x4");
  EXPECT_EQ(why_not("1x3", cluster_of("1x6")), "");
  EXPECT_NE(why_not("1x2", cluster_of("1x6")), "");
  for (const auto* bad : {"", "4", "0x8", "-1x8", "x", "1x", "ax4", "1x4:k80", "1x4,", "999999x1",
                          "1x99999999999999999999", "1xnodes"})
    EXPECT_NE(why_not(bad, cluster), "") << bad;
}

TEST(Quotas, TypesAreNamedWhereThereAreSeveral) {
  const Cluster cluster = cluster_of("2x8:v100,1x4:k80");
  EXPECT_EQ(text_of(parse_cells("1xnode:k80,2x4:v100", cluster).value(), cluster),
            "1x4:k80,2x4:v100");
  EXPECT_NE(why_not("1x4", cluster).find("name the type of GPUs, which is one of v100, k80"),
            std::string::npos);
}

TEST(Quotas, TheSumFitsTheCluster) {
  const Cluster cluster = cluster_of("2x8");
  Quotas quotas;
  EXPECT_TRUE(quotas.set(quota("a", "1xnode,1x4", cluster), cluster).ok());
  EXPECT_TRUE(quotas.set(quota("b", "2x2", cluster), cluster).ok());
  const auto no = quotas.set(quota("c", "1x1", cluster), cluster);
  ASSERT_FALSE(no.ok());
  EXPECT_EQ(
      no.error().message,
      "tenant c: its cells of 1 GPU do not fit the 16 GPUs of the cluster beside the cells of "
      "others; give it fewer or smaller ones");
  EXPECT_EQ(quotas.find("c"), nullptr);
  EXPECT_TRUE(quotas.set(quota("b", "1x2", cluster), cluster).ok());  // replaces its own
  EXPECT_TRUE(quotas.set(quota("c", "2x1", cluster), cluster).ok());
  EXPECT_TRUE(quotas.remove("a"));
  EXPECT_FALSE(quotas.remove("a"));
}

TEST(Quotas, AUserHasOneTenant) {
  const Cluster cluster = cluster_of("2x8");
  Quotas quotas;
  ASSERT_TRUE(quotas.set(quota("vision", "1x4", cluster, {"ann", "bob"}), cluster).ok());
  EXPECT_EQ(quotas.tenant_of("ann"), 0U);
  EXPECT_EQ(quotas.tenant_of("vision"), std::nullopt);
  const auto no = quotas.set(quota("speech", "1x4", cluster, {"bob"}), cluster);
  ASSERT_FALSE(no.ok());
  EXPECT_EQ(no.error().message, "tenant speech: user bob has the cells of vision already");
  EXPECT_FALSE(quotas.set(quota("a b", "1x4", cluster), cluster).ok());
  EXPECT_FALSE(quotas.set(quota("c", "1x4", cluster, {""}), cluster).ok());
}

TEST(Quotas, AFileHasATenantALine) {
  const Cluster cluster = cluster_of("2x8");
  const auto quotas =
      parse_quotas("# teams\nvision 1xnode ann bob\n\nspeech\t1x4 # cat\r\n", "cells", cluster);
  ASSERT_TRUE(quotas.ok()) << quotas.error().message;
  EXPECT_EQ(quotas->all().size(), 2U);
  EXPECT_EQ(quotas->find("vision")->members, (std::vector<std::string>{"ann", "bob"}));
  EXPECT_EQ(parse_quotas("vision\n", "cells", cluster).error().message,
            "cells:1: a line is TENANT CELLS [USER ...]");
  EXPECT_EQ(parse_quotas("# none\n", "cells", cluster).error().message, "cells: names no tenant");
  EXPECT_EQ(parse_quotas("a 1x4\na 1x4\n", "cells", cluster).error().message,
            "cells:2: tenant \"a\" is there twice");
}

TEST(Places, ACellMovesWhenItsNodeFails) {
  Cluster cluster = cluster_of("3x4");
  Quotas quotas;
  ASSERT_TRUE(quotas.set(quota("a", "1xnode", cluster), cluster).ok());
  ASSERT_TRUE(quotas.set(quota("b", "1x2", cluster), cluster).ok());
  const Places first = find_places(quotas, cluster, {}, {});
  EXPECT_EQ(first[0][0].node, node_id(0));
  EXPECT_EQ(first[1][0].node, node_id(1));
  cluster.set_state(node_id(0), NodeState::down);
  const Places second = find_places(quotas, cluster, first, {});
  EXPECT_EQ(second[0][0].node, node_id(2));
  EXPECT_EQ(second[1], first[1]);
  // Nothing moves back, and without another place a cell waits where it is.
  cluster.set_state(node_id(2), NodeState::down);
  const Places third = find_places(quotas, cluster, second, {});
  EXPECT_EQ(third[0], second[0]);
  cluster.set_state(node_id(0), NodeState::up);
  EXPECT_EQ(find_places(quotas, cluster, third, {})[0][0].node, node_id(0));
}

TEST(Places, TheOtherCellsOfATenantStayWhenItLosesOne) {
  const Cluster cluster = cluster_of("3x4");
  Quotas quotas;
  ASSERT_TRUE(quotas.set(quota("a", "1xnode,2x2", cluster), cluster).ok());
  const Places first = find_places(quotas, cluster, {}, {});
  ASSERT_TRUE(quotas.set(quota("a", "1x2", cluster), cluster).ok());
  const Places second = find_places(quotas, cluster, first, {});
  EXPECT_EQ(second[0][0], first[0][1]);
  ASSERT_TRUE(quotas.set(quota("a", "2xnode,1x2", cluster), cluster).ok());
  EXPECT_EQ(find_places(quotas, cluster, second, {})[0][2], second[0][0]);
}

TEST(Places, CellsAvoidGpusThatAreKept) {
  const Cluster cluster = cluster_of("2x4");
  Quotas quotas;
  ASSERT_TRUE(quotas.set(quota("a", "1xnode", cluster), cluster).ok());
  EXPECT_EQ(find_places(quotas, cluster, {}, {0b1, 0})[0][0].node, node_id(1));
}

TEST(Places, AreReadAsTheyWereWritten) {
  const Cluster cluster = cluster_of("2x64,1x6");
  Quotas quotas;
  ASSERT_TRUE(quotas.set(quota("a", "1x64,1x3,2x16", cluster), cluster).ok());
  const Places places = find_places(quotas, cluster, {}, {});
  const auto read = places_of(to_json(places[0]));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, places[0]);
  EXPECT_EQ(
      places_of(to_json(std::vector<CellPlace>{{{GpuType(), 4}, NodeId(), 0}})).value()[0].gpus,
      0U);
  for (const auto* bad :
       {"{}", "[1]", "[[1,2,3]]", "[[0,-1,0,0]]", "[[0,4,0,\"a\"]]", "[[256,4,0,0]]"})
    EXPECT_FALSE(places_of(Json::parse(bad)).ok()) << bad;
}

// Whatever fails: no GPU is in two cells, every cell is aligned and of its size, and cells whose
// GPUs can be used stay.
TEST(Places, HoldOnRandomClusters) {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Cluster cluster = cluster_of(
        std::vector<const char*>{"4x8", "3x4:a,2x8:b", "6x6", "1x64,2x8", "5x1"}[random.below(5)]);
    Quotas quotas;
    for (int i = 0; i < 12; ++i) {
      const auto& node = cluster.nodes()[random.below(cluster.nodes().size())];
      int size = node.gpus;
      while (size % 2 == 0 && random.below(2) == 0) size /= 2;
      TenantCells one{"t" + std::to_string(random.below(4)), {}, {}};
      one.cells.assign(random.below(3) + 1, {node.type, size});
      static_cast<void>(quotas.set(std::move(one), cluster));
    }
    Places places;
    for (int step = 0; step < 20; ++step) {
      const NodeId node = node_id(random.below(cluster.nodes().size()));
      cluster.set_state(node, random.below(3) == 0 ? NodeState::down : NodeState::up);
      if (random.below(4) == 0) cluster.set_reserved(node, random.below(256));
      const Places before = places;
      places = find_places(quotas, cluster, before, {});
      std::vector<std::uint64_t> taken(cluster.nodes().size(), 0);
      ASSERT_EQ(places.size(), quotas.all().size());
      for (std::size_t t = 0; t < places.size(); ++t) {
        ASSERT_EQ(places[t].size(), quotas.all()[t].cells.size());
        for (std::size_t i = 0; i < places[t].size(); ++i) {
          const CellPlace& place = places[t][i];
          ASSERT_EQ(place.cell, quotas.all()[t].cells[i]);
          ASSERT_EQ(std::popcount(place.gpus), place.cell.gpus);
          ASSERT_EQ(cluster.node(place.node).type, place.cell.type);
          ASSERT_EQ(std::countr_zero(place.gpus) % place.cell.gpus, 0);
          ASSERT_EQ(place.gpus & ~cluster.node(place.node).all(), 0U);
          ASSERT_EQ(taken[place.node.index()] & place.gpus, 0U);
          taken[place.node.index()] |= place.gpus;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rubato::cells
