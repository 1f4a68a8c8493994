# build-tsan/: the tests of what threads share, under the thread sanitizer. That is the gradient path of a worker
# (elastic/, member/, wire/), the daemon's HTTP server (http/, api/) and the threads on which its policies decide
# (daemon/background_threads). Not here: the runs of a simulation, which share nothing; the copy that elastic/driver.cc
# makes for a checkpoint; the whole core with such threads (daemon/decisions_test.cc), which needs all policies and the
# database.
#
# Few sources and one binary, so that it builds in minutes. Solvers, torch and the database stay outside:
# they are not compiled with the sanitizer, which would not see how their threads synchronise.
add_compile_options(-fsanitize=thread -O1 -gline-tables-only -fno-omit-frame-pointer)
add_link_options(-fsanitize=thread)

find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Boost 1.74 REQUIRED CONFIG)
find_library(XXHASH xxhash REQUIRED)
find_package(GTest REQUIRED)
find_library(RAPIDCHECK rapidcheck REQUIRED)

file(GLOB threaded_sources CONFIGURE_DEPENDS
  rubato/base/*.cc rubato/wire/*.cc rubato/member/*.cc rubato/elastic/*.cc rubato/api/*.cc rubato/http/*.cc
  rubato/jobfile/*.cc)
list(FILTER threaded_sources EXCLUDE REGEX "_test\\.cc$|/elastic/(driver|options|tuner|tuning|straggler)\\.cc$")
list(APPEND threaded_sources rubato/core/allocation.cc rubato/core/cluster.cc rubato/core/job.cc
  rubato/journal/digest.cc rubato/launch/process.cc rubato/daemon/background_threads.cc)
file(GLOB threaded_tests CONFIGURE_DEPENDS rubato/http/*_test.cc)
list(APPEND threaded_tests rubato/wire/poller_test.cc rubato/elastic/session_test.cc rubato/elastic/checkpoint_test.cc
  rubato/daemon/background_threads_test.cc)

add_library(rubato_threaded STATIC ${threaded_sources})
target_include_directories(rubato_threaded PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(rubato_threaded PUBLIC fmt::fmt Threads::Threads nlohmann_json::nlohmann_json OpenSSL::SSL
                                             yaml-cpp Boost::headers ${XXHASH})
compile_together(rubato_threaded 8)

enable_testing()
include(GoogleTest)
add_executable(test_threads ${threaded_tests})
target_link_libraries(test_threads PRIVATE rubato_threaded GTest::gtest GTest::gtest_main ${RAPIDCHECK})
# Without what has one thread only and takes long.
gtest_discover_tests(test_threads DISCOVERY_TIMEOUT 60 TEST_FILTER "-CheckpointDamage*:CheckpointChecksum*"
                     PROPERTIES ENVIRONMENT "RC_PARAMS=seed=1;TSAN_OPTIONS=halt_on_error=1")
