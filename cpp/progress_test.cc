#include "progress.h"

#include "testing/check.h"

using duovec::BuildProgress;

TEST(nested_phases_fill_their_parents_step) {
    BuildProgress progress;
    progress.start("build", "", 4);
    CHECK(progress.permille() == 0);
    progress.start("clone", "build", 2);
    progress.complete("clone", 0);
    CHECK(progress.permille() == 125);
    progress.complete("clone", 1);
    progress.finish("clone");
    progress.complete("build", 0);
    CHECK(progress.permille() == 250);
}

TEST(it_never_falls) {
    BuildProgress progress;
    progress.start("build", "", 2);
    progress.start("tactics", "build", 2);
    progress.complete("tactics", 1);
    CHECK(progress.permille() == 500);
    progress.finish("tactics");
    progress.start("tactics", "build", 10);
    CHECK(progress.permille() == 500);
}

TEST(the_outermost_end_is_the_whole) {
    BuildProgress progress;
    progress.start("build", "", 6);
    progress.complete("build", 2);
    progress.finish("build");
    CHECK(progress.permille() == 1000);
}

TEST(unknown_and_endless_phases_do_no_harm) {
    BuildProgress progress;
    progress.complete("nobody", 3);
    progress.finish("nobody");
    CHECK(progress.permille() == 0);
    progress.start("loop", "loop", 0);
    progress.start("loop", "loop", 3);
    progress.complete("loop", 2147483647);
    CHECK(progress.permille() <= 1000);
    for (int count = 0; count < 1000; ++count) {
        progress.start("many", "loop", 1);
    }
    CHECK(progress.permille() <= 1000);
}
