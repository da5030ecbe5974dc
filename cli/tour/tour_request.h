/* tour_request.h - the options that change the values of a tour, and which tour accepts which. */
#ifndef CLI_TOUR_TOUR_REQUEST_H
#define CLI_TOUR_TOUR_REQUEST_H

#include "command.h"
#include "tour/tour.h"

extern const struct poptOption tour_request_options[];

/* Reads the options for a tour, or for `entry` NULL checks that none is given. Finds the folder of
 * the model of tours that read one; for `all`, that of the built-in model. Returns an exit code; an option that the
 * tour does not accept is a usage error that states the reason. */
int tour_request_read(cli_session *session, const tour_entry *entry, tour_choice *choice);

#endif
