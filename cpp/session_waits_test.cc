// How sessions wait for their runs when they are told which are long.

#include <chrono>

#include "session.h"
#include "testing/session_rig.h"

using namespace duovec::testing;

TEST(who_measures_decides_whether_a_run_is_waited_for_asleep) {
    auto const engine = load();
    auto const session = engine->open_session(wanted(kAllGraphs, kLongRun));
    run(*session, {2, 8}, 4);
    auto const waits = [&](char const* what) {
        long const before = count(what);
        run(*session, {2, 8}, 4);
        return count(what) - before;
    };
    session->set_long_run(std::chrono::nanoseconds(0));
    CHECK(waits("sleep") == 1);
    CHECK(waits("spin") == 0);
    ScopedFaults const faults("run_us=5000");
    session->set_long_run(std::chrono::nanoseconds::max());
    CHECK(waits("sleep") == 0);
    CHECK(waits("spin") == 1);
}
