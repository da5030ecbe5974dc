/* tour_files.h - writes the tensors of a tour as files: tables as CSV, maps and curves as figures. */
#ifndef CLI_TOUR_OUTPUT_TOUR_FILES_H
#define CLI_TOUR_OUTPUT_TOUR_FILES_H

#include "command.h"
#include "tour/tour.h"

/* Writes the tensor NAME, or one matrix NAME[i, j], as CSV to session->out: a header with the words or numbers of the
 * columns, and a line per row with its indices. NULL = the first tensor that can be drawn, or the first tensor. Returns
 * an exit code. */
int tour_csv_put(cli_session *session, const tour *t, const char *name);

/* Writes every tensor to FOLDER/NAME.csv, and every curve and every matrix of weights to FOLDER/NAME.png and .svg, or
 * NAME-i-j.png and .svg if the tensor has several matrices. Creates the folder. Returns an exit code. */
int tour_files_save(cli_session *session, const tour *t, const char *folder);

#endif
